//! `mainstay cell start`

use clap::Args;
use mainstay_api::runtime::StartCellRequest;

use super::connect;
use super::executable_options::ExecutableOptions;
use crate::cli::{Format, Global};
use crate::failure::Outcome;
use crate::output;

/// Start an executable in a cell and leave it running
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay cell start web server -- /usr/bin/python3 -m http.server 80\n  \
    mainstay cell start web job --uid 1000 --env MODE=fast --workdir /srv -- ./job --all\n  \
    mainstay cell start web once -- sh -c 'date > /tmp/then; sleep 60'\n\n\
    The command is executed without a shell. An executable that has exited can be started again\n\
    under its name.")]
pub struct Start {
    /// Name of the cell
    cell: String,

    /// Name of the executable in the cell
    name: String,

    #[command(flatten)]
    options: ExecutableOptions,
}

impl Start {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let (cell, name) = (&self.cell, &self.name);
        let executable = self.options.executable(cell, name)?;
        let request = StartCellRequest {
            executable: Some(executable),
        };
        let answers = client
            .call_each(client.timeout(), &request, |request| {
                let mut cells = client.cells();
                async move { cells.start(request).await }
            })
            .await?;
        if global.output == Format::Table {
            for answer in &answers {
                let (prefix, pid) = (client.message_prefix(&answer.node), answer.message.pid);
                output::print(&format!(
                    "{prefix}{name:?} started in cell {cell:?} with PID {pid}\n"
                ))?;
            }
        } else {
            output::print_answers(global.output, "runtime.StartCellResponse", &answers)?;
        }
        client.finish()
    }
}
