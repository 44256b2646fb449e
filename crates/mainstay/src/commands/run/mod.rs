//! `mainstay run`: a program on the node as if it ran here. A cell for it is made, its output
//! comes to ours, signals go to it, and whatever happens the cell is gone in the end.

mod name;
mod program;
mod relay;
mod signals;

use clap::Args;
use mainstay_api::runtime::Cell;

use super::cell::executable::Options;
use super::cell::limits::Limits;
use super::connect;
use crate::cli::Global;
use crate::failure::Outcome;
use program::Program;
use signals::Signals;

/// Run a program on the node, in a cell of its own, and wait for its end
///
/// Its output comes to stdout and stderr, its exit code is the command's own. Ctrl-C, SIGTERM and
/// SIGHUP go to the program; a second Ctrl-C kills it. The cell is freed in the end. The program
/// has no standard input.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay run -- uname -a\n  \
    mainstay run --memory 64M --pids 20 -- sh -c 'make -C /srv check'\n  \
    mainstay run --cell web -- ps ax             inside a cell that is there already\n  \
    mainstay run --share net --uid 65534 -- curl -s http://10.0.0.9/\n  \
    mainstay run -n n2 -- df -h                  on another node\n\n\
    Exit codes: those of the program, 128 and the signal's number if one ended it, 127 if there is no\n\
    such program, 126 if it may not be executed.")]
pub struct Run {
    /// The cell to run in; only one that was not there before is freed [default: a new one]
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,

    /// What to call it in the cell [default: as the program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    limits: Limits,

    #[command(flatten)]
    options: Options,

    /// The program and its arguments
    #[arg(
        last = true,
        required = true,
        value_name = "COMMAND",
        help_heading = "Arguments"
    )]
    command: Vec<String>,
}

impl Run {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let node = client.only_node("run")?;
        let may_exist = self.cell.is_some();
        let cell = self.cell.unwrap_or_else(name::of_new_cell);
        let name = self
            .name
            .unwrap_or_else(|| name::of_program(self.command.first()));
        let executable = self.options.executable(&cell, &name, &self.command)?;
        let program = Program {
            client: &client,
            node,
            cell: &cell,
            name: &name,
        };
        let wanted: Cell = self.limits.cell(&cell);
        // From here on a signal does not end us, but what we have begun.
        let mut signals = Signals::listen()?;
        let ours = program.allocate(wanted, may_exist).await?;
        let ended = match program.start(executable).await {
            Ok(pid) => program.watch(pid, &mut signals, ours).await,
            Err(failure) => Err(failure),
        };
        if ours {
            program.free(&mut signals).await;
        }
        program.outcome(&ended?)
    }
}
