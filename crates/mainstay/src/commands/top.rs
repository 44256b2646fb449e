//! `mainstay top`

use std::io::IsTerminal;
use std::time::Duration;

use clap::Args;
use mainstay_client::chain;
use mainstay_client::format::parse_duration;

use crate::cli::{Format, Global};
use crate::failure::{Exit, Failure, Outcome, print_error, warn};
use crate::output;

/// Show a live view: CPUs, memory, disks, network, processes, services, logs
#[derive(Debug, Args)]
#[command(
    visible_alias = "dashboard",
    after_help = "Examples:\n  \
    mainstay top                            the node of the current context\n  \
    mainstay top -n node1,node2,node3       one row per node; Enter opens one\n  \
    mainstay top --once                     one snapshot, for a pipe\n  \
    mainstay top --once -o json | jq '.[].cpu.total.busy_percent'\n\n\
    Keys: ? shows them all, q quits"
)]
pub struct Top {
    /// Poll every TIME, from 100ms to 1h
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    interval: Duration,

    /// Print one snapshot and exit
    #[arg(long)]
    once: bool,
}

impl Top {
    pub async fn run(self, global: &Global) -> Outcome {
        if self.once {
            return once(global, self.interval).await;
        }
        if global.output != Format::Table {
            return Err(Failure::usage(
                "the live view has no -o json or yaml; --once -o json prints one snapshot",
            ));
        }
        if !std::io::stdout().is_terminal() {
            return Err(Failure::usage(
                "stdout is not a terminal; mainstay top --once prints one snapshot, \
                 mainstay ps -o json the processes",
            ));
        }
        if std::env::var_os("TERM").is_some_and(|term| term == "dumb") {
            return Err(Failure::usage(
                "terminal type \"dumb\" (TERM) has no cursor control; mainstay top --once prints one \
                 snapshot",
            ));
        }
        Ok(mainstay_top::run(&global.options(), self.interval, warn).await?)
    }
}

async fn once(global: &Global, interval: Duration) -> Outcome {
    let snapshot = mainstay_top::snapshot(&global.options(), interval, warn).await?;
    match global.output {
        Format::Table => output::print(&snapshot.text())?,
        format => output::print_document(format, &snapshot.json())?,
    }
    let mut outcome = Ok(());
    for (node, reason) in snapshot.lost() {
        print_error(&format!("node {node}: {reason}"));
        outcome = Err(Failure::printed(Exit::Partial));
    }
    outcome
}

impl From<mainstay_top::Error> for Failure {
    fn from(error: mainstay_top::Error) -> Self {
        match &error {
            mainstay_top::Error::Client(error) => Self::from(&**error),
            mainstay_top::Error::Terminal(_) => Self::new(
                Exit::Failed,
                format!("{}; mainstay top --once needs no terminal", chain(&error)),
            ),
            mainstay_top::Error::Io(_) => Self::caused(Exit::Failed, &error),
        }
    }
}

/// Parses an interval within bounds that neither flood the nodes nor freeze the view.
fn interval(text: &str) -> Result<Duration, String> {
    let interval = parse_duration(text)?;
    let bounds = Duration::from_millis(100)..=Duration::from_secs(3600);
    if bounds.contains(&interval) {
        Ok(interval)
    } else {
        Err("the interval must be between 100ms and 1h".to_owned())
    }
}
