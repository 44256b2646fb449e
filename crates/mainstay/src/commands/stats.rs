//! `mainstay stats`

use std::time::Duration;

use clap::Args;
use mainstay_api::os::{Stats as NodeStats, StatsRequest};

use super::connect;
use super::containers::Scope;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, cpu_time, size};

/// Show the memory and processor time that containers use
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay stats\n  \
    mainstay stats -k\n  \
    mainstay stats -k -o json | jq '.[].stats | max_by(.memory_usage) | .id'\n\n\
    MEMORY is the working set: all that is charged to a container but file cache unused of late.\n\
    CPU is the processor time since it was started. One that does not run uses nothing.")]
pub struct Stats {
    #[command(flatten)]
    scope: Scope,
}

impl Stats {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let request = StatsRequest {
            namespace: self.scope.namespace(),
            driver: self.scope.driver(),
        };
        let answers = client
            .call_all(request, |mut machine, request| async move {
                machine.stats(request).await
            })
            .await?;
        match global.output {
            Format::Table => output::print(&table(answers))?,
            format => output::print_answers(format, "os.Stats", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<NodeStats>>) -> String {
    let mut table = Table::new(&["NODE", "NAMESPACE", "ID", "MEMORY", "CPU"]);
    for Answer { node, message } in answers {
        for stat in message.stats {
            table.row(vec![
                node.clone(),
                stat.namespace,
                stat.id,
                size(stat.memory_usage),
                cpu_time(Duration::from_nanos(stat.cpu_usage).as_secs_f64()),
            ]);
        }
    }
    table.to_string()
}
