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

/// Show memory and CPU time of containers
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay stats\n  \
    mainstay stats -k\n  \
    mainstay stats -k -o json | jq '.[].stats | max_by(.memory_usage) | .id'\n\n\
    MEMORY is the working set: memory charged to the cgroup without inactive file cache.\n\
    CPU is the CPU time since the start. Both are 0 for a container that is not running.")]
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
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "os.Stats", &answers)?,
        }
        client.finish()
    }
}

fn table(answers: Vec<Answer<NodeStats>>) -> Table {
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
    table
}
