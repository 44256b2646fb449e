//! One call to one node.

use std::time::Duration;

use mainstay_api::{FromNode, Reply};
use mainstay_client::Error;
use tonic::{Response, Status};

/// Waits at most `timeout` for the answer of one node.
pub async fn call<R: Reply>(
    timeout: Duration,
    call: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<R::Message, Error> {
    let reply = match tokio::time::timeout(timeout, call).await {
        Ok(reply) => reply?.into_inner(),
        Err(_) => return Err(Error::Timeout(timeout)),
    };
    let message = reply.into_messages().into_iter().next();
    let message = message.ok_or(Error::EmptyReply)?;
    match message
        .metadata()
        .filter(|metadata| !metadata.error.is_empty())
    {
        None => Ok(message),
        Some(metadata) => Err(Error::of_node(metadata)),
    }
}

#[cfg(test)]
mod tests {
    use mainstay_api::common::Metadata;
    use mainstay_api::machine::{Hostname, HostnameResponse};

    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(5);

    fn reply(messages: Vec<Hostname>) -> Result<Response<HostnameResponse>, Status> {
        Ok(Response::new(HostnameResponse { messages }))
    }

    fn hostname(forwarded_for: &str, error: &str) -> Hostname {
        Hostname {
            metadata: Some(Metadata {
                hostname: forwarded_for.to_owned(),
                error: error.to_owned(),
                status: None,
            }),
            hostname: "orchard".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_forwarded_answer_is_an_answer() {
        let answer = call(TIMEOUT, async { reply(vec![hostname("node1", "")]) }).await;
        assert_eq!(answer.unwrap().hostname, "orchard");
    }

    #[tokio::test]
    async fn an_error_of_a_node_keeps_the_connection() {
        let gone = call(TIMEOUT, async { reply(vec![hostname("node1", "gone")]) }).await;
        let gone = gone.unwrap_err();
        assert_eq!(gone.to_string(), "gone");
        assert!(!gone.is_lost_connection());
        let empty = call(TIMEOUT, async { reply(Vec::new()) }).await;
        assert!(matches!(empty, Err(Error::EmptyReply)));
        let refused = async { Err::<Response<HostnameResponse>, _>(Status::unavailable("later")) };
        let refused = call(TIMEOUT, refused).await.unwrap_err();
        assert!(!refused.is_lost_connection());
    }

    #[tokio::test]
    async fn a_transport_error_is_a_lost_connection() {
        let lost = Status::from_error(Box::new(std::io::Error::other("broken pipe")));
        let lost = call(TIMEOUT, async {
            Err::<Response<HostnameResponse>, _>(lost)
        })
        .await;
        assert!(lost.unwrap_err().is_lost_connection());
    }

    #[tokio::test]
    async fn a_call_without_answer_times_out() {
        let never = std::future::pending::<Result<Response<HostnameResponse>, Status>>();
        let late = call(Duration::from_millis(1), never).await;
        assert!(matches!(late, Err(Error::Timeout(_))));
    }
}
