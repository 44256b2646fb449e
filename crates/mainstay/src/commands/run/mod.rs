//! `mainstay run`: runs a program in a cell with its output, signals and exit code forwarded. The
//! cell is freed however the run ends.

mod name;
mod program;
mod relay;
mod signals;

use clap::Args;
use mainstay_api::runtime::Cell;

use super::cell::cell_options::CellOptions;
use super::cell::executable_options::ExecutableOptions;
use super::connect;
use crate::cli::Global;
use crate::failure::Outcome;
use program::Program;
use signals::Signals;

/// Run a program on the node in a new cell and wait for it to exit
///
/// Forwards stdout, stderr and the exit code of the program, and SIGINT, SIGTERM and SIGHUP to it; a
/// second signal kills it. The cell is freed afterwards. The program has no stdin.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay run -- uname -a\n  \
    mainstay run --memory 64M --pids 20 -- sh -c 'make -C /srv check'\n  \
    mainstay run --cell web -- ps ax             in an existing cell\n  \
    mainstay run --share net --uid 65534 -- curl -s http://10.0.0.9/\n  \
    mainstay run -n n2 -- df -h                  on another node\n\n\
    Exit codes: that of the program, 128+N if signal N killed it, 126 if it is not executable, 127 if\n\
    it does not exist; see mainstay --help for failures of the command itself.")]
pub struct Run {
    /// Cell to run in; an existing one is not freed [default: a new cell]
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,

    /// Name of the executable in the cell [default: name of the program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    #[command(flatten)]
    cell_options: CellOptions,

    #[command(flatten)]
    options: ExecutableOptions,
}

impl Run {
    pub async fn run(self, global: &Global) -> Outcome {
        let client = connect(global).await?;
        let node = client.only_node("run")?;
        let may_exist = self.cell.is_some();
        let cell = self.cell.unwrap_or_else(name::of_new_cell);
        let name = self
            .name
            .unwrap_or_else(|| name::of_program(self.options.program()));
        let executable = self.options.executable(&cell, &name)?;
        let program = Program {
            client: &client,
            node,
            cell: &cell,
            name: &name,
        };
        let wanted: Cell = self.cell_options.cell(&cell);
        // From here on a signal stops the program instead of this process.
        let mut signals = Signals::listen()?;
        let created = program.allocate(wanted, may_exist).await?;
        let status = match program.start(executable).await {
            Ok(pid) => program.watch(pid, &mut signals, created).await,
            Err(failure) => Err(failure),
        };
        if created {
            program.free(&mut signals).await;
        }
        program.outcome(&status?)
    }
}
