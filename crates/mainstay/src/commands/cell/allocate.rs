//! `mainstay cell allocate`

use clap::Args;
use mainstay_api::runtime::AllocateCellRequest;

use super::connect;
use super::limits::Limits;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;

/// Make a cell, and start nothing in it
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell allocate web --memory 256M --cpus 1.5 --pids 100\n  \
    mainstay cell allocate web/worker            nested in the cell web, and in its limits\n  \
    mainstay cell allocate probe --share net     with the network of the host")]
pub struct Allocate {
    /// Letters, digits and hyphens; NAME/NAME is nested in another cell
    #[arg(value_name = "NAME")]
    cell: String,

    #[command(flatten)]
    limits: Limits,
}

impl Allocate {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let request = AllocateCellRequest {
            cell: Some(self.limits.cell(&self.cell)),
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
                output::print(&format!("{}: cell {cell:?} allocated\n", answer.node))?;
            }
        } else {
            output::print_answers(global.output, "runtime.AllocateCellResponse", &answers)?;
        }
        client.finish()
    }
}
