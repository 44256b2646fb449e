//! `mainstay cell allocate`

use clap::Args;
use mainstay_api::runtime::AllocateCellRequest;

use super::cell_options::CellOptions;
use super::connect;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;

/// Create a cell without starting anything in it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell allocate web --memory 256M --cpus 1.5 --pids 100\n  \
    mainstay cell allocate web/worker            nested in cell web and its limits\n  \
    mainstay cell allocate probe --share net     in the network namespace of the host")]
pub struct Allocate {
    /// Name of letters, digits and hyphens; PARENT/NAME is nested in another cell
    #[arg(value_name = "NAME")]
    cell: String,

    #[command(flatten)]
    options: CellOptions,
}

impl Allocate {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let request = AllocateCellRequest {
            cell: Some(self.options.cell(&self.cell)),
        };
        let answers = client
            .call_each(client.timeout(), &request, |request| {
                let mut cells = client.cells();
                async move { cells.allocate(request).await }
            })
            .await?;
        if global.output == Format::Table {
            for answer in &answers {
                let cell = &answer.message.cell_name;
                let prefix = client.message_prefix(&answer.node);
                output::print(&format!("{prefix}cell {cell:?} allocated\n"))?;
            }
        } else {
            output::print_answers(global.output, "runtime.AllocateCellResponse", &answers)?;
        }
        client.finish()
    }
}
