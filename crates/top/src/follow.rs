//! Follows one log of one node, across lost connections.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::StreamExt;
use mainstay_api::machine::LogsRequest;
use mainstay_client::{Error, chain, request_to_nodes};
use tokio::sync::mpsc;

use super::link::{Backoff, Connection, Link, State};

/// Lines of history: more than the tallest terminal shows, to scroll back.
const TAIL_LINES: i32 = 500;

/// A change of the followed log.
#[derive(Debug)]
pub enum LogUpdate {
    /// The log is read from its tail again; earlier lines are void.
    Restarted,
    Bytes(Bytes),
    Failed(String),
}

/// Follows a log until the receiver of its updates is dropped.
#[derive(Debug)]
pub struct Follower {
    pub node: Option<String>,
    pub log: String,
    pub link: Link,
    /// Distinguishes this follower from earlier ones.
    pub tag: u64,
    pub updates: mpsc::Sender<(u64, LogUpdate)>,
}

impl Follower {
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            if let State::Up(connection) = self.link.state() {
                let Some(error) = self.follow(&connection, &mut backoff).await else {
                    return;
                };
                let reason = chain(&error);
                if error.is_lost_connection() {
                    self.link.report_lost(&connection, Arc::new(error));
                }
                if !self.send(LogUpdate::Failed(reason)).await {
                    return;
                }
            }
            // Retry on a new connection, or after a while on this one.
            let _ = tokio::time::timeout(backoff.next(), self.link.changed()).await;
        }
    }

    async fn send(&self, update: LogUpdate) -> bool {
        self.updates.send((self.tag, update)).await.is_ok()
    }

    /// Returns the error that ended the stream; `None` if the receiver is gone.
    async fn follow(&self, connection: &Connection, backoff: &mut Backoff) -> Option<Error> {
        let request = LogsRequest {
            namespace: "system".to_owned(),
            id: self.log.clone(),
            driver: 0,
            follow: true,
            tail_lines: TAIL_LINES,
            since: None,
            until: None,
            previous: false,
        };
        let mut machine = connection.client.machine();
        let request = request_to_nodes(self.node.as_slice(), request);
        let mut stream = match machine.logs(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Some(status.into()),
        };
        if !self.send(LogUpdate::Restarted).await {
            return None;
        }
        while let Some(data) = stream.next().await {
            let data = match data {
                Ok(data) => data,
                Err(status) => return Some(status.into()),
            };
            let metadata = data.metadata.as_ref();
            if let Some(failed) = metadata.filter(|metadata| !metadata.error.is_empty()) {
                return Some(Error::of_node(failed));
            }
            *backoff = Backoff::default();
            if !self.send(LogUpdate::Bytes(data.bytes)).await {
                return None;
            }
        }
        Some(tonic::Status::aborted("the node ended the log stream").into())
    }
}
