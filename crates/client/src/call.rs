//! Bounds on waiting for an answer.

use std::time::Duration;

use tonic::Status;

use crate::Error;

/// Waits at most `timeout` for an answer, or for a stream to start.
pub(crate) async fn within<T>(
    timeout: Duration,
    call: impl Future<Output = Result<T, Status>>,
) -> Result<T, Error> {
    match tokio::time::timeout(timeout, call).await {
        // The library measures the deadline too, where it was sent to the node.
        Ok(Err(status)) if !is_timeout(&status) => Err(status.into()),
        Ok(Ok(answer)) => Ok(answer),
        _ => Err(Error::Timeout(timeout)),
    }
}

fn is_timeout(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::TimeoutExpired>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_answer_is_a_timeout() {
        let never = std::future::pending::<Result<(), Status>>();
        let bound = Duration::from_millis(1);
        assert!(matches!(within(bound, never).await, Err(Error::Timeout(_))));
        let expired =
            async { Err::<(), _>(Status::from_error(Box::new(tonic::TimeoutExpired(())))) };
        assert!(matches!(
            within(bound, expired).await,
            Err(Error::Timeout(_))
        ));
    }
}
