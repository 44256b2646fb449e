//! The trial of a daemon that was started from a new slot: it proves that it serves and has found
//! what ran before, and reports so to its guard. The guard ends it if no report comes in time.

use std::collections::BTreeMap;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_cells::{Cells, ExitStatus};
use mainstay_error_chain::chain;
use mainstay_slots::TrialChannel;
use tokio::net::UnixStream;
use tonic::transport::Endpoint;
use tracing::{error, info};

use crate::handover::Process;
use crate::node::Node;

/// Workloads that an error names.
const MAX_NAMED: usize = 5;
const SIGKILL: i32 = 9;

#[derive(Debug, thiserror::Error)]
enum Unhealthy {
    #[error("the API cannot be reached on its own socket")]
    Unreachable(#[source] tonic::transport::Error),
    #[error("the API does not answer")]
    NoAnswer(#[source] tonic::Status),
    #[error("the API answers as version {found}, not as {own}")]
    OtherVersion { found: String, own: String },
    #[error("{count} of {all} workloads are lost: {named}")]
    Lost {
        count: usize,
        all: usize,
        named: String,
    },
    #[error("the check of the workloads panicked")]
    Panicked,
}

/// Checks this daemon and reports the result. Once it is confirmed, the guard becomes the daemon.
pub async fn run(mut channel: TrialChannel, node: Arc<Node>, process: Process) {
    info!("on trial");
    let checked = check(&node).await;
    let reported = tokio::task::spawn_blocking(move || match checked {
        Ok(()) => channel.healthy().map(|()| true),
        Err(why) => {
            let reason = chain(&why);
            error!(
                reason,
                "not healthy; the guard returns to the version before"
            );
            channel.failed(&reason).map(|()| false)
        }
    });
    match reported.await {
        Ok(Ok(true)) => {
            info!("confirmed; handing over to the guard");
            process.release();
        }
        Ok(Ok(false)) => {}
        Ok(Err(why)) => error!(error = chain(&why), "cannot report the result of the trial"),
        Err(_) => error!("reporting the result of the trial failed"),
    }
}

async fn check(node: &Arc<Node>) -> Result<(), Unhealthy> {
    answers(node).await?;
    let node = Arc::clone(node);
    let found = tokio::task::spawn_blocking(move || {
        let engines = &node.engines;
        let found = [&engines.cells, engines.services.cells()];
        has_found(&engines.upgrade.slots.expected(), found)
    });
    found.await.unwrap_or(Err(Unhealthy::Panicked))
}

/// Calls the API as a client does.
async fn answers(node: &Node) -> Result<(), Unhealthy> {
    let socket = node.engines.listeners.socket.clone();
    let connector = tower::service_fn(move |_| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    let endpoint = Endpoint::from_static("http://node");
    let channel = endpoint.connect_with_connector(connector).await;
    let mut machine = MachineServiceClient::new(channel.map_err(Unhealthy::Unreachable)?);
    let answer = machine.version(()).await.map_err(Unhealthy::NoAnswer)?;
    let messages = answer.into_inner().messages;
    let version = messages.into_iter().find_map(|message| message.version);
    let found = version.map(|version| version.tag).unwrap_or_default();
    let own = format!("v{}", node.build.version);
    match found == own {
        true => Ok(()),
        false => Err(Unhealthy::OtherVersion { found, own }),
    }
}

/// Lists the runs in cells and of services as text that the next daemon recognises: each run has one
/// start.
pub fn running(engines: [&Cells; 2]) -> Vec<String> {
    let mut running = Vec::new();
    for cell in engines.into_iter().flat_map(Cells::list) {
        for executable in cell.executables {
            if executable.run.is_running() {
                running.push(key(
                    &executable.cell,
                    &executable.name,
                    executable.run.started,
                ));
            }
        }
    }
    running
}

fn key(cell: &impl std::fmt::Display, name: &impl std::fmt::Display, started: i64) -> String {
    format!("{cell}/{name} {started}")
}

/// Compares what ran with what was found. A run that has ended by itself meanwhile has an exit code;
/// one without, or that was killed, is lost.
fn has_found(expected: &[String], engines: [&Cells; 2]) -> Result<(), Unhealthy> {
    let mut found = BTreeMap::new();
    for cell in engines.into_iter().flat_map(Cells::list) {
        for executable in cell.executables {
            for run in executable.all_runs() {
                let lost = match run.end.map(|end| end.status) {
                    None | Some(ExitStatus::Exited(_)) => false,
                    Some(ExitStatus::Killed { signal, .. }) => signal == SIGKILL,
                    Some(ExitStatus::Lost) => true,
                };
                found.insert(key(&executable.cell, &executable.name, run.started), lost);
            }
        }
    }
    let is_lost = |key: &&String| found.get(*key).copied().unwrap_or(true);
    let lost: Vec<&String> = expected.iter().filter(is_lost).collect();
    if lost.is_empty() {
        return Ok(());
    }
    let named = lost.iter().take(MAX_NAMED);
    let named: Vec<&str> = named
        .map(|key| key.split(' ').next().unwrap_or(key))
        .collect();
    Err(Unhealthy::Lost {
        count: lost.len(),
        all: expected.len(),
        named: named.join(", "),
    })
}
