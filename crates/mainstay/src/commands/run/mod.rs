//! `mainstay run`: runs a program in a cell with its output, signals and exit code forwarded. The
//! cell is freed at the end, unless this process is killed or the node is lost.

mod attach;
mod link;
mod name;
mod notices;
mod program;
mod relay;
mod signals;
mod stdin;
mod terminal;

use std::time::Duration;

use clap::Args;
use mainstay_api::runtime::Cell;
use mainstay_client::format::parse_duration;

use super::cell::cell_options::CellOptions;
use super::cell::executable_options::ExecutableOptions;
use super::connect;
use crate::cli::Global;
use crate::failure::Outcome;
use attach::Attachment;
use link::Link;
use program::{Program, Streams};
use signals::Signals;
use stdin::Stdin;
use terminal::RawTerminal;

/// Run a program on the node in a new cell and wait for it to exit
///
/// Forwards stdin to the program, its stdout, stderr and exit code back, and SIGINT, SIGTERM, SIGHUP
/// and SIGQUIT to it; a second signal kills it. The cell is freed afterwards. The run outlives a
/// restart of the daemon: the command connects again and continues where it was.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    mainstay run -- uname -a\n  \
    mainstay run --memory 64M --pids 20 -- sh -c 'make -C /srv check'\n  \
    mainstay run --cell web -- ps ax             in an existing cell\n  \
    mainstay run --share net --uid 65534 -- curl -s http://10.0.0.9/\n  \
    mainstay run -n n2 -- df -h                  on another node\n  \
    tar c . | mainstay run -- tar x -C /srv      stdin is forwarded\n  \
    mainstay run -t -- bash                      on a terminal\n\n\
    Exit codes: that of the program, 128+N if signal N killed it, 126 if it is not executable, 127 if\n\
    it does not exist; see mainstay --help for failures of the command itself.")]
pub struct Run {
    /// Cell to run in; an existing one is not freed [default: a new cell]
    #[arg(long, value_name = "NAME")]
    cell: Option<String>,

    /// Name of the executable in the cell [default: name of the program]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// Run the program on a pseudoterminal, with this terminal in raw mode
    #[arg(short = 't', long, conflicts_with = "no_stdin")]
    tty: bool,

    /// Give the program an empty stdin; /dev/null as stdin does the same
    #[arg(long)]
    no_stdin: bool,

    /// Try for TIME to connect again when the node is lost
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration)]
    reconnect: Duration,

    #[command(flatten)]
    cell_options: CellOptions,

    #[command(flatten)]
    options: ExecutableOptions,
}

impl Run {
    pub async fn run(self, global: &Global) -> Outcome {
        if self.tty {
            terminal::check()?;
        }
        let client = connect(global).await?;
        let node = client.only_node("run")?.map(str::to_owned);
        let link = Link::new(global, client, self.reconnect);
        let may_exist = self.cell.is_some();
        let cell = self.cell.unwrap_or_else(name::of_new_cell);
        let name = self
            .name
            .unwrap_or_else(|| name::of_program(self.options.program()));
        let mut executable = self.options.executable(&cell, &name)?;
        executable.stdin = !self.tty && !self.no_stdin && stdin::is_useful();
        if self.tty {
            executable.terminal = Some(terminal::size());
            inherit_term(&mut executable.environment);
        }
        let has_stdin = executable.stdin;
        let program = Program {
            link: &link,
            node,
            cell: &cell,
            name: &name,
        };
        let wanted: Cell = self.cell_options.cell(&cell);
        // From here on a signal stops the program instead of this process.
        let mut signals = Signals::listen()?;
        let created = program.allocate(wanted, may_exist).await?;
        let status = match program.start(executable).await {
            Ok(pid) => match Guarded::open(self.tty, has_stdin) {
                Ok(Guarded { streams, raw }) => {
                    link.notices.set_raw(raw.is_some());
                    let status = program.watch(pid, &mut signals, streams, created).await;
                    // Before anything else is said on the terminal.
                    drop(raw);
                    link.notices.set_raw(false);
                    if status.is_err() {
                        link.notices.begin_line();
                    }
                    status
                }
                Err(failure) => Err(failure),
            },
            Err(failure) => Err(failure),
        };
        if created {
            let end = program.free(&mut signals).await;
            let status = status.map_err(|failure| program.explain(failure, end));
            return program.outcome(&status?);
        }
        program.outcome(&status?)
    }
}

/// The streams of the program, with the terminal in raw mode if they need it.
struct Guarded {
    streams: Streams,
    raw: Option<RawTerminal>,
}

impl Guarded {
    fn open(tty: bool, has_stdin: bool) -> Outcome<Self> {
        if tty {
            let raw = RawTerminal::enter()?;
            let streams = Streams::Terminal(Attachment::new(Some(Stdin::open()?), true)?);
            return Ok(Self {
                streams,
                raw: Some(raw),
            });
        }
        let stdin = has_stdin.then(Stdin::open).transpose()?;
        let attachment = stdin.map(|stdin| Attachment::new(Some(stdin), false));
        Ok(Self {
            streams: Streams::Pipes(attachment.transpose()?),
            raw: None,
        })
    }
}

/// Adds the type of this terminal, unless the environment names one.
fn inherit_term(environment: &mut Vec<String>) {
    if environment
        .iter()
        .any(|variable| variable.starts_with("TERM="))
    {
        return;
    }
    let term = std::env::var("TERM").ok();
    environment.extend(term.map(|term| format!("TERM={term}")));
}
