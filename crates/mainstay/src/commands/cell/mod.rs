//! `mainstay cell`: isolated executables with resource limits.

mod allocate;
pub(super) mod cell_options;
pub(super) mod executable_options;
mod free;
mod list;
mod logs;
mod start;
mod stats;
pub(super) mod stop;

use std::time::Duration;

use clap::Subcommand;
use mainstay_api::runtime::{CellStatus, ExecutableStatus, ListCellsRequest};

use super::connect;
use crate::cli::Global;
use crate::connection::Connection;
use crate::failure::Outcome;

/// Namespace of cells in the container and log APIs.
const NAMESPACE: &str = "mainstay";

/// The node bounds a stop by the grace period; this is longer than any.
const MIN_STOP_TIMEOUT: Duration = Duration::from_secs(600);

/// Manage cells: isolated executables with resource limits
///
/// A cell is a cgroup with limits and a set of namespaces: PID, network, mount, IPC, UTS and
/// cgroup. Its executables survive a restart of the daemon. `mainstay run` creates a cell for one
/// program.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:\n  \
    mainstay cell allocate web --memory 256M --cpus 1.5\n  \
    mainstay cell start web server --uid 1000 -- /usr/bin/python3 -m http.server\n  \
    mainstay cell list\n  \
    mainstay cell logs web server -f\n  \
    mainstay cell stop web server\n  \
    mainstay cell free web")]
pub enum Cell {
    Allocate(allocate::Allocate),
    Free(free::CellFree),
    List(list::List),
    Start(start::Start),
    Stop(stop::Stop),
    Logs(logs::CellLogs),
    Stats(stats::CellStats),
}

impl Cell {
    pub async fn run(self, global: &Global) -> Outcome {
        match self {
            Self::Allocate(allocate) => allocate.run(global).await,
            Self::Free(free) => free.run(global).await,
            Self::List(list) => list.run(global).await,
            Self::Start(start) => start.run(global).await,
            Self::Stop(stop) => stop.run(global).await,
            Self::Logs(logs) => logs.run(global).await,
            Self::Stats(stats) => stats.run(global).await,
        }
    }
}

/// Returns the status of an executable; `None` if it does not exist.
pub(super) async fn executable(
    client: &Connection,
    node: Option<&str>,
    cell: &str,
    name: &str,
) -> Outcome<Option<ExecutableStatus>> {
    let request = mainstay_client::request_to_node(
        node,
        ListCellsRequest {
            cell_name: cell.to_owned(),
        },
    );
    let mut cells = client.cells();
    let answer = client.within(cells.list(request)).await?.into_inner();
    Ok(find(answer.cells, cell, name))
}

fn find(cells: Vec<CellStatus>, cell: &str, name: &str) -> Option<ExecutableStatus> {
    let mut level = cells;
    while !level.is_empty() {
        let mut below = Vec::new();
        for status in level {
            if status.cell.is_some_and(|found| found.name == cell) {
                return status.executables.into_iter().find(|executable| {
                    let spec = executable.executable.as_ref();
                    spec.is_some_and(|spec| spec.name == name)
                });
            }
            below.extend(status.children);
        }
        level = below;
    }
    None
}
