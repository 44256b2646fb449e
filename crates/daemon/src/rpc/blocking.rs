//! Blocking reads, away from the async workers.

use tonic::Status;

/// Runs a read that blocks on the kernel; `what` names it in errors.
pub async fn blocking<T: Send + 'static>(
    what: &'static str,
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> Result<T, Status> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Status::internal(format!("cannot read {what}: {error}"))),
        Err(_) => Err(Status::internal(format!(
            "reading {what} failed; the node's log says why"
        ))),
    }
}
