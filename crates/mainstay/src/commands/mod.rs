//! One file per command, named like the command.

pub mod cat;
pub mod cell;
pub mod cgroups;
pub mod completion;
pub mod config;
pub mod containers;
pub mod cp;
pub mod df;
pub mod disks;
pub mod dmesg;
pub mod du;
pub mod events;
pub mod free;
pub mod health;
pub mod interfaces;
pub mod logs;
pub mod ls;
pub mod man;
pub mod netstat;
pub mod pcap;
pub mod pki;
pub mod ps;
pub mod reboot;
pub mod reset;
pub mod restart;
pub mod rollback;
pub mod routes;
pub mod run;
pub mod schedule;
mod sequence;
pub mod serve;
pub mod service;
pub mod services;
pub mod shutdown;
pub mod slots;
pub mod stats;
mod streams;
pub mod support;
pub mod time;
pub mod top;
pub mod upgrade;
pub mod upgrade_image;
mod upload;
pub mod version;

use crate::cli::{Cli, Command, Global};
use crate::connection::Connection;
use crate::failure::Outcome;

pub fn run(cli: Cli) -> Outcome {
    let Cli { global, command } = cli;
    match command {
        Command::Serve(serve) => serve.run(),
        Command::Version(version) => block_on(version.run(&global)),
        Command::Health(health) => block_on(health.run(&global)),
        Command::Services(services) => block_on(services.run(&global)),
        Command::Service(service) => block_on(service.run(&global)),
        Command::Events(events) => block_on(events.run(&global)),
        Command::Logs(logs) => block_on(logs.run(&global)),
        Command::Top(top) => block_on_with_worker(top.run(&global)),
        Command::Ps(ps) => block_on(ps.run(&global)),
        Command::Free(free) => block_on(free.run(&global)),
        Command::Df(df) => block_on(df.run(&global)),
        Command::Du(du) => block_on(du.run(&global)),
        Command::Disks(disks) => block_on(disks.run(&global)),
        Command::Netstat(netstat) => block_on(netstat.run(&global)),
        Command::Interfaces(interfaces) => block_on(interfaces.run(&global)),
        Command::Routes(routes) => block_on(routes.run(&global)),
        Command::Cgroups(cgroups) => block_on(cgroups.run(&global)),
        Command::Time(time) => block_on(time.run(&global)),
        Command::Pcap(pcap) => block_on(pcap.run(&global)),
        Command::Dmesg(dmesg) => block_on(dmesg.run(&global)),
        Command::Containers(containers) => block_on(containers.run(&global)),
        Command::Stats(stats) => block_on(stats.run(&global)),
        Command::Restart(restart) => block_on(restart.run(&global)),
        Command::Reboot(reboot) => block_on(reboot.run(&global)),
        Command::Shutdown(shutdown) => block_on(shutdown.run(&global)),
        Command::Reset(reset) => block_on(reset.run(&global)),
        Command::Run(run) => block_on_and_abandon(run.run(&global)),
        Command::Cell(cell) => block_on(cell.run(&global)),
        Command::Schedule(schedule) => block_on(schedule.run(&global)),
        Command::Ls(ls) => block_on(ls.run(&global)),
        Command::Cat(cat) => block_on(cat.run(&global)),
        Command::Cp(cp) => block_on(cp.run(&global)),
        Command::Config(config) => config.run(&global),
        Command::Pki(pki) => pki.run(&global),
        Command::Support(support) => block_on(support.run(&global)),
        Command::Upgrade(upgrade) => block_on(upgrade.run(&global)),
        Command::Rollback(rollback) => block_on(rollback.run(&global)),
        Command::Slots(slots) => block_on(slots.run(&global)),
        Command::UpgradeImage(image) => image.run(&global),
        Command::Completion(completion) => completion.run(),
        Command::Man(man) => man.run(),
    }
}

/// Runs a client command on one thread.
fn block_on(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(work)
}

/// Runs a client command without waiting for pending writes to a reader that has stopped reading.
fn block_on_and_abandon(work: impl Future<Output = Outcome>) -> Outcome {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// Runs a client command with a worker thread, so that decoding large answers does not delay the
/// live view.
fn block_on_with_worker(work: impl Future<Output = Outcome>) -> Outcome {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?
        .block_on(work)
}

async fn connect(global: &Global) -> Outcome<Connection> {
    Connection::open(global).await
}
