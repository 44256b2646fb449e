//! `mainstay reset`

use std::io::{BufRead, IsTerminal, Write};

use clap::{Args, ValueEnum};
use mainstay_api::machine::{ResetPartitionSpec, ResetRequest};
use mainstay_client::Answer;
use mainstay_client::format::Table;

use super::connect;
use super::sequence::{Sequence, WaitOptions};
use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome};
use crate::output;

/// Wipe the state of nodes and return them to how they were installed
///
/// Wipes files below the state directory of the node, never a disk. STATE is what makes the node
/// this node: its CA, certificates, users and services; afterwards it creates a new CA, and clients
/// need new certificates. EPHEMERAL is what workloads and the past have left: cells, logs, events
/// and images. The audit log stays.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay reset --dry-run                     list what would be wiped\n  \
    mainstay reset --reboot --label EPHEMERAL    keep the identity of the node\n  \
    mainstay reset -n n3 --yes                   wipe all and shut down, without a question")]
pub struct Reset {
    /// Start the node again afterwards instead of shutting it down
    #[arg(long)]
    reboot: bool,

    /// Wipe only this part of the state; may be repeated [default: all]
    #[arg(long = "label", value_name = "LABEL", value_enum, ignore_case = true)]
    labels: Vec<LabelArgument>,

    /// Kill what runs instead of stopping it in good order
    #[arg(long)]
    no_graceful: bool,

    /// List what would be wiped and do nothing
    #[arg(long, conflicts_with_all = ["yes", "no_wait"])]
    dry_run: bool,

    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    wait: WaitOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "UPPER")]
enum LabelArgument {
    /// CA, certificates, users and services
    State,
    /// Cells, logs, events and images
    Ephemeral,
}

impl LabelArgument {
    fn as_str(self) -> &'static str {
        match self {
            Self::State => "STATE",
            Self::Ephemeral => "EPHEMERAL",
        }
    }
}

impl Reset {
    pub async fn run(self, global: &Global) -> Outcome {
        let is_asked = !self.yes && !self.dry_run;
        if is_asked && !std::io::stdin().is_terminal() {
            return Err(Failure::usage(
                "reset asks for confirmation on a terminal; without one confirm it with --yes",
            ));
        }
        let client = connect(global).await?;
        if self.dry_run {
            return self.list(global, &client).await;
        }
        if is_asked {
            self.confirm(&client).await?;
        }
        let wipes_identity = self.labels.is_empty() || self.labels.contains(&LabelArgument::State);
        let sequence = Sequence {
            name: "reset",
            done: "reset",
            returns: self.reboot,
            replaces_identity: wipes_identity && self.reboot,
            start_timeout: None,
            wait: &self.wait,
        };
        sequence
            .run(global, &client, |client, request| {
                let request = request.map(|()| self.request(false));
                async move {
                    let mut answer = client.machine().reset(request).await?.into_inner();
                    Ok(answer.messages.pop().unwrap_or_default().actor_id)
                }
            })
            .await
    }

    fn request(&self, dry_run: bool) -> ResetRequest {
        let partitions = self.labels.iter().map(|label| ResetPartitionSpec {
            label: label.as_str().to_owned(),
            wipe: true,
        });
        ResetRequest {
            graceful: !self.no_graceful,
            reboot: self.reboot,
            system_partitions_to_wipe: partitions.collect(),
            dry_run,
            ..ResetRequest::default()
        }
    }

    async fn entries(
        &self,
        client: &Connection,
    ) -> Outcome<Vec<Answer<mainstay_api::machine::Reset>>> {
        client
            .call_all(self.request(true), |mut machine, request| async move {
                machine.reset(request).await
            })
            .await
    }

    async fn list(&self, global: &Global, client: &Connection) -> Outcome {
        let answers = self.entries(client).await?;
        match global.output {
            Format::Table => client.print_table(table(&answers))?,
            format => output::print_answers(format, "machine.Reset", &answers)?,
        }
        client.finish()
    }

    /// Shows what is wiped and asks on the terminal. Every node must have answered.
    async fn confirm(&self, client: &Connection) -> Outcome {
        let answers = self.entries(client).await?;
        client.finish()?;
        let table = match client.has_many_nodes() {
            true => table(&answers),
            false => table(&answers).without_node(),
        };
        let text = mainstay_client::format::printable_lines(&table.to_string());
        anstream::eprint!("{text}\nWipe this? Type yes to continue: ");
        std::io::stderr().flush()?;
        let mut answer = String::new();
        std::io::stdin().lock().read_line(&mut answer)?;
        match answer.trim() {
            "yes" => Ok(()),
            _ => Err(Failure::new(
                Exit::Failed,
                "not confirmed; nothing is wiped",
            )),
        }
    }
}

fn table(answers: &[Answer<mainstay_api::machine::Reset>]) -> Table {
    let mut table = Table::new(&["NODE", "LABEL", "PATH", "FILES", "BYTES"]);
    for Answer { node, message } in answers {
        for entry in &message.entries {
            table.row(vec![
                node.clone(),
                entry.label.clone(),
                entry.path.clone(),
                entry.files.to_string(),
                entry.bytes.to_string(),
            ]);
        }
    }
    table
}
