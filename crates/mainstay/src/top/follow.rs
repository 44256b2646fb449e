//! Follows one log of one node, also across a lost connection.

use bytes::Bytes;
use futures_util::StreamExt;
use mainstay_api::machine::LogsRequest;
use tokio::sync::mpsc;

use super::ask::Trouble;
use super::link::{Backoff, Connection, Link, State};
use crate::client::Client;
use crate::failure::{Exit, Failure};

/// As many of the last lines as the tallest terminal shows, and some to scroll back to.
const LINES_BEFORE: i32 = 500;

#[derive(Debug)]
pub enum LogNews {
    /// It is read from the end again: what came before is no longer meant.
    Anew,
    Bytes(Bytes),
    Trouble(String),
}

#[derive(Debug)]
pub struct Follower {
    pub node: Option<String>,
    pub log: String,
    pub link: Link,
    /// Tells this follower from those before it.
    pub tag: u64,
    pub news: mpsc::Sender<(u64, LogNews)>,
}

impl Follower {
    /// Ends when nobody takes the news any more.
    pub async fn run(mut self) {
        let mut backoff = Backoff::default();
        loop {
            if let State::Up(connection) = self.link.state() {
                match self.follow(&connection, &mut backoff).await {
                    None => return,
                    Some(trouble) => {
                        if let Trouble::Link(failure) = &trouble {
                            self.link.lost(&connection, failure);
                        }
                        let why = trouble.failure().message;
                        if !self.tell(LogNews::Trouble(why)).await {
                            return;
                        }
                    }
                }
            }
            // Again when there is another connection, or after a while on the same one.
            let _ = tokio::time::timeout(backoff.next(), self.link.changed()).await;
        }
    }

    async fn tell(&self, news: LogNews) -> bool {
        self.news.send((self.tag, news)).await.is_ok()
    }

    /// What ended the log; nothing when there is nobody to tell.
    async fn follow(&self, connection: &Connection, backoff: &mut Backoff) -> Option<Trouble> {
        let request = LogsRequest {
            namespace: "system".to_owned(),
            id: self.log.clone(),
            driver: 0,
            follow: true,
            tail_lines: LINES_BEFORE,
            since: None,
            until: None,
            previous: false,
        };
        let mut machine = connection.client.machine();
        let request = Client::request_to(self.node.as_ref(), request);
        let mut stream = match machine.logs(request).await {
            Ok(answer) => answer.into_inner(),
            Err(status) => return Some(status.into()),
        };
        if !self.tell(LogNews::Anew).await {
            return None;
        }
        while let Some(data) = stream.next().await {
            let data = match data {
                Ok(data) => data,
                Err(status) => return Some(status.into()),
            };
            if let Some(told) = data.metadata.filter(|told| !told.error.is_empty()) {
                return Some(Trouble::Node(Failure::of_node(&told)));
            }
            *backoff = Backoff::default();
            if !self.tell(LogNews::Bytes(data.bytes)).await {
                return None;
            }
        }
        let ended = Failure::new(Exit::Failed, "the node ended the log");
        Some(Trouble::Node(ended))
    }
}
