//! The stop of everything that runs on the node.

use std::pin::Pin;
use std::time::Duration;

use mainstay_cells::{CellError, CellName, Cells, StopOptions};
use mainstay_error_chain::chain;
use mainstay_lifecycle::TaskError;
use tokio::task::JoinSet;

use crate::engines::schedule::Schedule;
use crate::engines::services::Services;

type Stopping = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;

/// Something on the node that a sequence stops as a whole.
pub trait Stoppable: Send + Sync + std::fmt::Debug + 'static {
    /// The name of the task, such as `stopAllServices`.
    fn task(&self) -> &'static str;

    /// Stops all of it within `limit`, the deadline of the task; without grace by SIGKILL at once.
    fn stop_all(&self, graceful: bool, limit: Duration) -> Stopping;
}

/// Stopped at once; more would only compete for the disk and the kernel.
const MAX_PARALLEL: usize = 32;
/// An error names this many cells.
const MAX_NAMED: usize = 5;

/// All executables in cells. The cells stay, as machines keep their disks. No schedule starts one
/// again before the next daemon does, or the sequence fails.
#[derive(Debug)]
pub struct AllCells {
    cells: Cells,
    schedule: Schedule,
}

impl AllCells {
    pub fn new(cells: Cells, schedule: Schedule) -> Self {
        Self { cells, schedule }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{failed} of {all} cells: {}", errors.join("; "))]
struct CellsError {
    failed: usize,
    all: usize,
    errors: Vec<String>,
}

impl Stoppable for AllCells {
    fn task(&self) -> &'static str {
        "stopAllCells"
    }

    fn stop_all(&self, graceful: bool, _: Duration) -> Stopping {
        let grace = (!graceful).then_some(Duration::ZERO);
        self.schedule.hold(true);
        Box::pin(stop_cells(self.cells.clone(), grace))
    }
}

async fn stop_cells(cells: Cells, grace: Option<Duration>) -> Result<(), TaskError> {
    let options = StopOptions {
        grace,
        ..StopOptions::default()
    };
    let names = cells.list().into_iter().map(|cell| cell.cell.name);
    each(names.collect(), move |name| {
        let cells = cells.clone();
        async move { cells.stop(name, None, options).await }
    })
    .await
}

/// All services, in reverse order of their dependencies. None starts before the next daemon does, or
/// the sequence fails.
#[derive(Debug)]
pub struct AllServices {
    services: Services,
}

impl AllServices {
    pub fn new(services: Services) -> Self {
        Self { services }
    }
}

#[derive(Debug, thiserror::Error)]
#[error("{count} services are not down: {}", described.join("; "))]
struct ServicesError {
    count: usize,
    described: Vec<String>,
}

impl Stoppable for AllServices {
    fn task(&self) -> &'static str {
        "stopAllServices"
    }

    fn stop_all(&self, graceful: bool, limit: Duration) -> Stopping {
        let services = self.services.clone();
        Box::pin(async move {
            let rest = limit / 4;
            let stopped_within = match graceful {
                true => limit.saturating_sub(rest * 2),
                false => Duration::ZERO,
            };
            let mut left = services.stop_all(stopped_within).await;
            if !left.is_empty() {
                stop_cells(services.cells().clone(), Some(Duration::ZERO)).await?;
                left = services.stop_all(rest).await;
            }
            if left.is_empty() {
                return Ok(());
            }
            let described = left.iter().take(MAX_NAMED);
            let described = described.map(|left| format!("{}: {}", left.service, left.reason));
            Err(Box::new(ServicesError {
                count: left.len(),
                described: described.collect(),
            }) as TaskError)
        })
    }
}

/// Frees all cells: their processes, cgroups, records and logs.
pub async fn free_all(cells: Cells) -> Result<(), TaskError> {
    // Freeing a cell frees those nested in it.
    let names = cells.list().into_iter().map(|cell| cell.cell.name);
    let outer = names.filter(|name| !name.as_str().contains('/'));
    each(outer.collect(), move |name| {
        let cells = cells.clone();
        async move { cells.free(name).await }
    })
    .await
}

/// Does the work for each cell, and reports all errors at its end.
async fn each<F>(names: Vec<CellName>, work: impl Fn(CellName) -> F) -> Result<(), TaskError>
where
    F: Future<Output = Result<(), CellError>> + Send + 'static,
{
    let all = names.len();
    let mut names = names.into_iter();
    let mut running = JoinSet::new();
    let mut errors = Vec::new();
    for name in names.by_ref().take(MAX_PARALLEL) {
        running.spawn(work(name));
    }
    while let Some(done) = running.join_next().await {
        match done {
            // A cell that was freed meanwhile has nothing left to stop.
            Ok(Ok(()) | Err(CellError::NoSuchCell { .. })) => {}
            Ok(Err(error)) => errors.push(chain(&error)),
            Err(panicked) => errors.push(panicked.to_string()),
        }
        if let Some(name) = names.next() {
            running.spawn(work(name));
        }
    }
    if errors.is_empty() {
        return Ok(());
    }
    let failed = errors.len();
    errors.truncate(MAX_NAMED);
    Err(Box::new(CellsError {
        failed,
        all,
        errors,
    }))
}
