//! Everything that comes from the nodes: a poller for each, and one log that is followed.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;

use super::app::App;
use super::follow::{Follower, LogNews};
use super::link::Link;
use super::poll::{Gaze, News, Poller};
use crate::cli::Global;
use crate::client::Client;
use crate::failure::{Exit, Failure, Outcome};

#[derive(Debug)]
pub struct Feed {
    pub names: Vec<String>,
    /// Where the readings count their time from.
    pub start: Instant,
    pub news: mpsc::Receiver<(usize, News)>,
    gaze: watch::Sender<Gaze>,
    pub logs: Logs,
}

impl Feed {
    /// Begins to ask the nodes of `client`, or the endpoint itself if none are named.
    pub fn start(client: Client, global: &Global, interval: Duration, gaze: Gaze) -> Self {
        let start = Instant::now();
        let nodes: Vec<Option<String>> = match client.nodes() {
            [] => vec![None],
            nodes => nodes.iter().cloned().map(Some).collect(),
        };
        let endpoint = client.node_name(None);
        let names = nodes
            .iter()
            .map(|node| node.clone().unwrap_or(endpoint.clone()));
        let names = names.collect();
        let link = Link::keep(client, global.clone());
        let (tell, news) = mpsc::channel(64);
        let (gaze, seen) = watch::channel(gaze);
        for (index, node) in nodes.iter().enumerate() {
            let poller = Poller {
                index,
                node: node.clone(),
                link: link.clone(),
                interval,
                patience: global.timeout,
                start,
                gaze: seen.clone(),
                news: tell.clone(),
            };
            tokio::spawn(poller.run());
        }
        Self {
            names,
            start,
            news,
            gaze,
            logs: Logs::new(link, nodes),
        }
    }

    /// Asks a node that is looked at for more than the others.
    pub fn look_at(&self, gaze: Gaze) {
        self.gaze.send_if_modified(|now| {
            let changed = *now != gaze;
            *now = gaze;
            changed
        });
    }

    /// Waits until some node has answered. If none does, why the first did not is the command's
    /// failure, as it is for every other command.
    pub async fn first_answer(&mut self, app: &mut App) -> Outcome {
        let mut silent = HashSet::new();
        let mut reason = None;
        while silent.len() < self.names.len() {
            let Some((index, news)) = self.news.recv().await else {
                break;
            };
            match news {
                News::Round(round) => {
                    app.take_in(index, *round);
                    return Ok(());
                }
                News::Lost { at, failure } => {
                    app.lose(index, at, failure.message.clone());
                    silent.insert(index);
                    reason.get_or_insert(failure);
                }
            }
        }
        Err(reason.unwrap_or_else(|| Failure::new(Exit::Failed, "no node was asked")))
    }
}

/// The log that is followed, if one is.
#[derive(Debug)]
pub struct Logs {
    link: Link,
    nodes: Vec<Option<String>>,
    followed: Option<(usize, String)>,
    follower: Option<AbortHandle>,
    tag: u64,
    tell: mpsc::Sender<(u64, LogNews)>,
    news: mpsc::Receiver<(u64, LogNews)>,
}

impl Logs {
    fn new(link: Link, nodes: Vec<Option<String>>) -> Self {
        let (tell, news) = mpsc::channel(64);
        Self {
            link,
            nodes,
            followed: None,
            follower: None,
            tag: 0,
            tell,
            news,
        }
    }

    /// Follows this log of that node, or none; tells whether it is another than before.
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
                news: self.tell.clone(),
            };
            self.follower = Some(tokio::spawn(follower.run()).abort_handle());
        }
        true
    }

    /// What comes of the log that is followed now.
    pub async fn recv(&mut self) -> Option<LogNews> {
        loop {
            let (tag, news) = self.news.recv().await?;
            if tag == self.tag {
                return Some(news);
            }
        }
    }
}
