//! Readings of the machine that may take long, bounded over all callers.

use tokio::sync::Semaphore;
use tonic::Status;

use super::slots::{Bounds, Slot, Slots};
use crate::requester::Requester;

/// Each holds a thread and its result in memory until it is encoded.
static READINGS: Slots = Slots::new(Bounds {
    shared: 32,
    reserved: 16,
    per_caller: 8,
});

/// Runs blocking work away from the async workers; `what` names it in errors.
pub async fn reading<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let slot = slot(what)?;
    run(what, slot, work).await
}

/// Like [`reading`], for work of which only so many may run at once. Those that wait for their turn
/// count already, so that no caller fills the queue.
pub async fn reading_in_turn<T: Send + 'static>(
    what: &'static str,
    turns: &'static Semaphore,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let slot = slot(what)?;
    // Never closed.
    let turn = turns.acquire().await.ok();
    run(what, (slot, turn), work).await
}

fn slot(what: &str) -> Result<Slot, Status> {
    READINGS.take(Requester::current()).map_err(|error| {
        Status::resource_exhausted(format!(
            "cannot read {what}: {error}; retry when one is done"
        ))
    })
}

async fn run<T: Send + 'static>(
    what: &str,
    held: impl Send + 'static,
    work: impl FnOnce() -> Result<T, Status> + Send + 'static,
) -> Result<T, Status> {
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(held);
        done
    });
    done.await
        .map_err(|_| Status::internal(format!("reading {what} failed; the node's log says why")))?
}
