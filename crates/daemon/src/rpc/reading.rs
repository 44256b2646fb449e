//! Readings of the machine that may take long, bounded over all callers.

use tonic::Status;

use super::slots::{Bounds, Slots};
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
    let slot = READINGS.take(Requester::current()).map_err(|error| {
        Status::resource_exhausted(format!(
            "cannot read {what}: {error}; retry when one is done"
        ))
    })?;
    let done = tokio::task::spawn_blocking(move || {
        let done = work();
        drop(slot);
        done
    });
    done.await
        .map_err(|_| Status::internal(format!("reading {what} failed; the node's log says why")))?
}
