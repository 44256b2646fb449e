//! One file per command, named like the command.

pub mod cat;
pub mod cell;
pub mod completion;
pub mod config;
pub mod containers;
pub mod cp;
pub mod df;
pub mod dmesg;
pub mod du;
pub mod events;
pub mod free;
pub mod health;
pub mod logs;
pub mod ls;
pub mod man;
pub mod netstat;
pub mod pki;
pub mod ps;
pub mod restart;
pub mod run;
pub mod serve;
pub mod stats;
mod streams;
pub mod top;
pub mod version;

use crate::cli::{Cli, Command, Global};
use crate::connection::Connection;
use crate::failure::Outcome;

pub fn run(cli: Cli) -> Outcome {
    let Cli { global, command } = cli;
    match command {
        Command::Serve(serve) => serve.run(),
        Command::Version(version) => talk(version.run(&global)),
        Command::Health(health) => talk(health.run(&global)),
        Command::Events(events) => talk(events.run(&global)),
        Command::Logs(logs) => talk(logs.run(&global)),
        Command::Top(top) => watch(top.run(&global)),
        Command::Ps(ps) => talk(ps.run(&global)),
        Command::Free(free) => talk(free.run(&global)),
        Command::Df(df) => talk(df.run(&global)),
        Command::Du(du) => talk(du.run(&global)),
        Command::Netstat(netstat) => talk(netstat.run(&global)),
        Command::Dmesg(dmesg) => talk(dmesg.run(&global)),
        Command::Containers(containers) => talk(containers.run(&global)),
        Command::Stats(stats) => talk(stats.run(&global)),
        Command::Restart(restart) => talk(restart.run(&global)),
        Command::Run(run) => talk_and_leave(run.run(&global)),
        Command::Cell(cell) => talk(cell.run(&global)),
        Command::Ls(ls) => talk(ls.run(&global)),
        Command::Cat(cat) => talk(cat.run(&global)),
        Command::Cp(cp) => talk(cp.run(&global)),
        Command::Config(config) => config.run(&global),
        Command::Pki(pki) => pki.run(&global),
        Command::Completion(completion) => completion.run(),
        Command::Man(man) => man.run(),
    }
}

/// Runs what talks to a node. One thread is enough for a client.
fn talk(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// The same for what writes beside: a write whose reader does not read is not waited for.
fn talk_and_leave(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// The same for a view that stays quick while long answers are taken apart beside it.
fn watch(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(work)
}

async fn connect(global: &Global) -> Outcome<Connection> {
    Connection::open(global).await
}
