//! One question to one node.

use std::time::Duration;

use mainstay_api::{FromNode, Reply};
use tonic::{Response, Status};

use crate::failure::{Exit, Failure};

/// What became of a question that got no answer.
#[derive(Debug)]
pub enum Trouble {
    /// The connection is gone, and with it every other question.
    Link(Failure),
    /// The node, or what forwards to it, did not answer this one.
    Node(Failure),
}

impl Trouble {
    pub fn failure(self) -> Failure {
        match self {
            Self::Link(failure) | Self::Node(failure) => failure,
        }
    }
}

impl From<Status> for Trouble {
    fn from(status: Status) -> Self {
        // A status that a peer sent has no source; one made here because nothing came has.
        if std::error::Error::source(&status).is_some() {
            Self::Link(status.into())
        } else {
            Self::Node(status.into())
        }
    }
}

/// The answer to `call`, which is given up after a while.
pub async fn ask<R: Reply>(
    patience: Duration,
    call: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<R::Message, Trouble> {
    let reply = match tokio::time::timeout(patience, call).await {
        Ok(reply) => reply?.into_inner(),
        Err(_) => return Err(Trouble::Node(no_answer(patience))),
    };
    let Some(message) = reply.into_messages().into_iter().next() else {
        return Err(Trouble::Node(Failure::new(
            Exit::Failed,
            "the node answered without a message",
        )));
    };
    match message.metadata().filter(|told| !told.error.is_empty()) {
        None => Ok(message),
        Some(told) => Err(Trouble::Node(Failure::of_node(told))),
    }
}

fn no_answer(patience: Duration) -> Failure {
    Failure::new(
        Exit::Timeout,
        format!(
            "no answer within {}; --timeout TIME waits longer",
            humantime::format_duration(patience)
        ),
    )
}

#[cfg(test)]
mod tests {
    use mainstay_api::common::Metadata;
    use mainstay_api::machine::{Hostname, HostnameResponse};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(5);

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
    async fn an_answer_that_was_forwarded_is_an_answer() {
        let answer = ask(PATIENCE, async { reply(vec![hostname("node1", "")]) }).await;
        assert_eq!(answer.unwrap().hostname, "orchard");
    }

    #[tokio::test]
    async fn a_node_that_cannot_be_reached_is_not_the_connection() {
        let gone = ask(PATIENCE, async { reply(vec![hostname("node1", "gone")]) }).await;
        assert!(matches!(&gone, Err(Trouble::Node(failure)) if failure.message == "gone"));
        let empty = ask(PATIENCE, async { reply(Vec::new()) }).await;
        assert!(matches!(empty, Err(Trouble::Node(_))));
        let refused = async { Err::<Response<HostnameResponse>, _>(Status::unavailable("later")) };
        let refused = ask(PATIENCE, refused).await;
        assert!(matches!(refused, Err(Trouble::Node(_))));
    }

    #[tokio::test]
    async fn a_call_that_never_came_back_is_the_connection() {
        let lost = Status::from_error(Box::new(std::io::Error::other("the connection was lost")));
        let lost = ask(PATIENCE, async {
            Err::<Response<HostnameResponse>, _>(lost)
        })
        .await;
        assert!(matches!(lost, Err(Trouble::Link(_))));
    }

    #[tokio::test]
    async fn no_answer_is_waited_for_without_end() {
        let never = std::future::pending::<Result<Response<HostnameResponse>, Status>>();
        let late = ask(Duration::from_millis(1), never).await;
        assert!(matches!(late, Err(Trouble::Node(failure)) if failure.exit == Exit::Timeout));
    }
}
