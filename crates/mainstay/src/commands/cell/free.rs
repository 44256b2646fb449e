//! `mainstay cell free`

use clap::Args;
use mainstay_api::runtime::FreeCellRequest;
use serde_json::json;

use super::{MIN_STOP_TIMEOUT, connect};
use crate::cli::{Format, Global};
use crate::failure::{Failure, Outcome};
use crate::output;

/// Kill everything in cells, nested ones included, and remove them
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell free web\n  \
    mainstay cell free run-1 run-2\n\n\
    Logs and exit codes of a cell are removed with it.")]
pub struct CellFree {
    /// Names of the cells
    #[arg(value_name = "NAME", required = true)]
    cells: Vec<String>,
}

impl CellFree {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let timeout = global.timeout.max(MIN_STOP_TIMEOUT);
        let mut freed = Vec::new();
        let mut failed: Option<Failure> = None;
        for cell in self.cells {
            let request = FreeCellRequest {
                cell_name: cell.clone(),
            };
            let answers = client.call_each(timeout, &request, |request| {
                let mut cells = client.cells();
                async move { cells.free(request).await }
            });
            let outcome = answers.await.and_then(|answers| {
                for answer in answers {
                    if global.output == Format::Table {
                        let prefix = client.message_prefix(&answer.node);
                        output::print(&format!("{prefix}cell {cell:?} freed\n"))?;
                    }
                    freed.push(json!({ "node": answer.node, "cell": cell }));
                }
                client.finish()
            });
            // A cell that cannot be freed does not keep the others.
            if let Err(failure) = outcome
                && let Some(earlier) = failed.replace(failure)
            {
                earlier.report();
            }
        }
        if global.output != Format::Table {
            output::print_document(global.output, &json!(freed))?;
        }
        failed.map_or(Ok(()), Err)
    }
}
