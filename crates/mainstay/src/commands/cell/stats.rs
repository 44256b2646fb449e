//! `mainstay cell stats`

use std::time::Duration;

use clap::Args;
use mainstay_api::os::{Stats as NodeStats, StatsRequest};
use mainstay_api::runtime::ListCellsRequest;

use super::{NAMESPACE, connect};
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;
use mainstay_client::Answer;
use mainstay_client::format::{Table, cpu_time, size};

/// Show memory and CPU time of executables in cells
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell stats\n  \
    mainstay cell stats web                      cell web and nested cells\n\n\
    MEMORY is the working set: memory charged to the cgroup without inactive file cache.\n\
    CPU is the CPU time. Both include child processes.")]
pub struct CellStats {
    /// Restrict to this cell and its nested cells
    #[arg(value_name = "NAME")]
    cell: Option<String>,
}

impl CellStats {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        if let Some(cell) = &self.cell {
            // Statistics have no rows for a cell without executables; the list knows if it exists.
            let request = ListCellsRequest {
                cell_name: cell.clone(),
            };
            client
                .call_each(client.timeout(), &request, |request| {
                    let mut cells = client.cells();
                    async move { cells.list(request).await }
                })
                .await?;
        }
        let request = StatsRequest {
            namespace: NAMESPACE.to_owned(),
            ..StatsRequest::default()
        };
        let mut answers = client
            .call_all(request, |mut machine, request| async move {
                machine.stats(request).await
            })
            .await?;
        if let Some(cell) = &self.cell {
            for answer in &mut answers {
                let stats = &mut answer.message.stats;
                stats.retain(|stat| is_within(&stat.pod_id, cell));
            }
        }
        match global.output {
            Format::Table => client.print_table(table(answers))?,
            format => output::print_answers(format, "os.Stats", &answers)?,
        }
        client.finish()
    }
}

/// Returns `true` if `name` is `cell` or nested in it.
fn is_within(name: &str, cell: &str) -> bool {
    name.strip_prefix(cell)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn table(answers: Vec<Answer<NodeStats>>) -> Table {
    let mut table = Table::new(&["NODE", "CELL", "EXECUTABLE", "MEMORY", "CPU"]);
    for Answer { node, message } in answers {
        for stat in message.stats {
            table.row(vec![
                node.clone(),
                stat.pod_id,
                stat.name,
                size(stat.memory_usage),
                cpu_time(Duration::from_nanos(stat.cpu_usage).as_secs_f64()),
            ]);
        }
    }
    table
}
