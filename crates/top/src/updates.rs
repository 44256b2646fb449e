//! Updates from the nodes: a poller for each, and the one log that is followed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use mainstay_client::{Client, Options};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::Error;
use super::app::App;
use super::follow::{Follower, LogUpdate};
use super::link::Link;
use super::poll::{Detail, Poller, Update};

#[derive(Debug)]
pub struct Updates {
    pub names: Vec<String>,
    /// Reference point of the times in rounds.
    pub start: Instant,
    pub polled: mpsc::Receiver<(usize, Update)>,
    detail: watch::Sender<Detail>,
    pub logs: Logs,
}

impl Updates {
    /// Starts to poll the nodes of `client`, or the endpoint itself if none are named.
    pub fn start(client: Client, options: &Options, interval: Duration, detail: Detail) -> Self {
        let start = Instant::now();
        let nodes: Vec<Option<String>> = match client.nodes() {
            [] => vec![None],
            nodes => nodes.iter().cloned().map(Some).collect(),
        };
        let endpoint = client.node_name(None);
        let names = nodes
            .iter()
            .map(|node| node.clone().unwrap_or(endpoint.clone()))
            .collect();
        let link = Link::new(client, options.clone());
        let (send, polled) = mpsc::channel(64);
        let (detail, seen) = watch::channel(detail);
        for (index, node) in nodes.iter().enumerate() {
            let poller = Poller {
                index,
                node: node.clone(),
                link: link.clone(),
                interval,
                timeout: options.timeout,
                start,
                detail: seen.clone(),
                updates: send.clone(),
            };
            tokio::spawn(poller.run());
        }
        Self {
            names,
            start,
            polled,
            detail,
            logs: Logs::new(link, nodes),
        }
    }

    /// Selects the nodes that are polled in full.
    pub fn set_detail(&self, detail: Detail) {
        self.detail.send_if_modified(|current| {
            let changed = *current != detail;
            *current = detail;
            changed
        });
    }

    /// Waits until some node has answered. Fails with the first error if none does.
    pub async fn first_answer(&mut self, app: &mut App) -> Result<(), Error> {
        let mut lost = HashSet::new();
        let mut first = None;
        while lost.len() < self.names.len() {
            let Some((index, update)) = self.polled.recv().await else {
                break;
            };
            match update {
                Update::Round(round) => {
                    app.apply_round(index, *round);
                    return Ok(());
                }
                Update::Lost { at, error } => {
                    app.mark_lost(index, at, mainstay_client::chain(&*error));
                    lost.insert(index);
                    first.get_or_insert(error);
                }
            }
        }
        first.map_or(Ok(()), |error| Err(Error::Client(error)))
    }
}

/// The followed log, if any.
#[derive(Debug)]
pub struct Logs {
    link: Link,
    nodes: Vec<Option<String>>,
    followed: Option<(usize, String)>,
    follower: Option<AbortHandle>,
    tag: u64,
    send: mpsc::Sender<(u64, LogUpdate)>,
    updates: mpsc::Receiver<(u64, LogUpdate)>,
}

impl Logs {
    fn new(link: Link, nodes: Vec<Option<String>>) -> Self {
        let (send, updates) = mpsc::channel(64);
        Self {
            link,
            nodes,
            followed: None,
            follower: None,
            tag: 0,
            send,
            updates,
        }
    }

    /// Follows this log of that node, or none. Returns whether the log changed.
    pub fn follow(&mut self, wanted: Option<(usize, &str)>) -> bool {
        let followed = self.followed.as_ref();
        if followed.map(|(node, log)| (*node, log.as_str())) == wanted {
            return false;
        }
        if let Some(follower) = self.follower.take() {
            follower.abort();
        }
        self.tag += 1;
        self.followed = wanted.map(|(node, log)| (node, log.to_owned()));
        if let Some((node, log)) = wanted {
            let follower = Follower {
                node: self.nodes.get(node).cloned().flatten(),
                log: log.to_owned(),
                link: self.link.clone(),
                tag: self.tag,
                updates: self.send.clone(),
            };
            self.follower = Some(tokio::spawn(follower.run()).abort_handle());
        }
        true
    }

    /// Returns the next update of the log that is followed now.
    pub async fn recv(&mut self) -> Option<LogUpdate> {
        loop {
            let (tag, update) = self.updates.recv().await?;
            if tag == self.tag {
                return Some(update);
            }
        }
    }
}
