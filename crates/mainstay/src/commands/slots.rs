//! `mainstay slots`

use clap::Args;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_api::mainstay::{Slots as NodeSlots, SlotsResponse};
use mainstay_client::Answer;
use mainstay_client::format::Table;

use super::connect;
use crate::cli::{Format, Global};
use crate::failure::{Outcome, note_with_end};
use crate::output;

/// Show the versions in the two slots of a node, and how the last upgrade or rollback has ended
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay slots\n  \
    mainstay slots -n n1,n2,n3\n  \
    mainstay slots -o json | jq -r '.[0].last.reason'\n\n\
    A node that was never upgraded has no slots.")]
pub struct Slots;

impl Slots {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let channel = client.channel();
        let answers = client
            .call_all((), |_, request| {
                let mut node = NodeServiceClient::new(channel.clone());
                async move { node.slots(request).await }
            })
            .await?;
        let answers: Vec<Answer<<SlotsResponse as mainstay_api::Reply>::Message>> = answers;
        match global.output {
            Format::Table => {
                client.print_table(table(&answers))?;
                for Answer { node, message } in &answers {
                    print_last(&client.message_prefix(node), message)?;
                }
            }
            format => output::print_answers(format, "mainstay.Slots", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: &[Answer<NodeSlots>]) -> Table {
    let mut table = Table::new(&[
        "NODE", "SLOT", "VERSION", "SHA", "STATE", "WRITTEN", "DIGEST",
    ]);
    for Answer { node, message } in answers {
        for slot in &message.slots {
            let state = match () {
                () if slot.name == message.current => "current",
                () if slot.name == message.trial && message.staged => "staged",
                () if slot.name == message.trial => "on trial",
                () => "",
            };
            table.row(vec![
                node.clone(),
                slot.name.clone(),
                slot.version.clone(),
                slot.sha.clone(),
                state.to_owned(),
                slot.written.clone(),
                slot.digest.chars().take(19).collect(),
            ]);
        }
    }
    table
}

fn print_last(prefix: &str, slots: &NodeSlots) -> Outcome {
    if slots.slots.is_empty() {
        let text = format!("{prefix}never upgraded; the installed binary runs");
        note_with_end(&text, "\n");
    }
    let Some(last) = &slots.last else {
        return Ok(());
    };
    let (kind, from, to, time) = (&last.kind, &last.from_version, &last.to_version, &last.time);
    let text = match last.kept {
        true => format!("{prefix}{kind} from {from} to {to} confirmed {time}\n"),
        false => format!("{prefix}{kind} to {to} failed {time}: {}\n", last.reason),
    };
    output::print(&text)
}
