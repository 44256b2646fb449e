//! One question, many nodes: what came of each, and which failed.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use mainstay_api::common::Metadata;
use mainstay_api::{FromNode, Reply};
use tonic::{Request, Response, Status};

use super::{Client, Machine, within};
use crate::failure::{Exit, Failure, Outcome, tell, warn};

/// So many nodes are named in one call: the answers of all must fit into one message.
const NODES_PER_CALL: usize = 64;

/// What one node answered.
#[derive(Debug)]
pub struct Answer<M> {
    /// The node as the user named it, else the endpoint itself.
    pub node: String,
    pub message: M,
}

/// The nodes that could not answer.
#[derive(Debug, Default)]
pub(super) struct Failures(Mutex<Vec<Failed>>);

#[derive(Debug)]
struct Failed {
    node: String,
    exit: Exit,
    message: String,
    told: bool,
}

impl Client {
    /// Asks every node; the answers come in the order in which the user named the nodes. Those
    /// that failed are remembered for [`Client::outcome`]; if all did, that is the outcome.
    pub async fn ask<Q, R, F>(
        &self,
        question: Q,
        call: impl Fn(Machine, Request<Q>) -> F,
    ) -> Outcome<Vec<Answer<R::Message>>>
    where
        Q: Clone,
        R: Reply,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.ask_within(self.timeout, question, call).await
    }

    /// The same for what takes its time.
    pub async fn ask_within<Q, R, F>(
        &self,
        bound: Duration,
        question: Q,
        call: impl Fn(Machine, Request<Q>) -> F,
    ) -> Outcome<Vec<Answer<R::Message>>>
    where
        Q: Clone,
        R: Reply,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let calls = self.calls(&question).into_iter().map(|mut request| {
            request.set_timeout(bound);
            call(self.machine(), request)
        });
        let replies = within(bound, try_join_all(calls)).await?;
        let mut answers: Vec<Answer<R::Message>> = replies
            .into_iter()
            .flat_map(|reply| reply.into_inner().into_messages())
            .filter(|message| !self.has_failed(message.metadata()))
            .map(|message| Answer {
                node: self.node_name(message.metadata()),
                message,
            })
            .collect();
        if answers.is_empty() {
            self.outcome()?;
        }
        answers.sort_by_key(|answer| self.nodes.iter().position(|node| *node == answer.node));
        Ok(answers)
    }

    /// Asks every node by a call of its own, for answers that cannot be merged.
    pub async fn ask_each<Q, A, F>(
        &self,
        bound: Duration,
        question: &Q,
        call: impl Fn(Request<Q>) -> F,
    ) -> Outcome<Vec<Answer<A>>>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let ask = |node: Option<&str>| {
            let mut request = passed_on(node, question.clone());
            request.set_timeout(bound);
            within(bound, call(request))
        };
        if self.nodes.is_empty() {
            return Ok(vec![Answer {
                node: self.node_name(None),
                message: ask(None).await?.into_inner(),
            }]);
        }
        let replies = join_all(self.nodes.iter().map(|node| ask(Some(node)))).await;
        let mut answers = Vec::new();
        for (node, reply) in self.nodes.iter().zip(replies) {
            match reply {
                Ok(reply) => answers.push(Answer {
                    node: node.clone(),
                    message: reply.into_inner(),
                }),
                Err(failure) => self.add_failure(node, failure),
            }
        }
        if answers.is_empty() {
            self.outcome()?;
        }
        Ok(answers)
    }

    /// The one node that is asked, `None` for the endpoint itself; for what only one can do.
    pub fn only_node(&self, what: &str) -> Outcome<Option<&str>> {
        match self.nodes.as_slice() {
            [] => Ok(None),
            [node] => Ok(Some(node)),
            nodes => Err(Failure::usage(format!(
                "{what} takes one node, not {}; name it with -n NODE",
                nodes.len()
            ))),
        }
    }

    fn calls<Q: Clone>(&self, question: &Q) -> Vec<Request<Q>> {
        if self.nodes.is_empty() {
            return vec![Request::new(question.clone())];
        }
        self.nodes
            .chunks(NODES_PER_CALL)
            .map(|nodes| to_nodes(question.clone(), nodes))
            .collect()
    }

    /// A request for a stream, with the nodes it is for.
    pub fn request<Q>(&self, message: Q) -> Request<Q> {
        to_nodes(message, &self.nodes)
    }

    /// A request for one of the nodes, or for the endpoint itself.
    pub fn request_to<Q>(node: Option<&String>, message: Q) -> Request<Q> {
        to_nodes(message, node.map_or(&[], std::slice::from_ref))
    }

    /// Whether more than one node is asked, so that it must be said whose each line is.
    pub fn asks_many(&self) -> bool {
        self.nodes.len() > 1
    }

    fn has_failed(&self, metadata: Option<&Metadata>) -> bool {
        let Some(failed) = metadata.filter(|metadata| !metadata.error.is_empty()) else {
            return false;
        };
        self.add_failure(&failed.hostname, Failure::of_node(failed));
        true
    }

    /// A node that was asked by a call of its own, which failed.
    pub fn add_failure(&self, node: &str, failure: Failure) {
        self.failures.add(Failed {
            node: node.to_owned(),
            exit: failure.exit,
            message: failure.message,
            told: false,
        });
    }

    /// Tells what a streamed message has to say beside its content: that its node has failed,
    /// which makes it the node's last, or that something is missing. `true` if it was the last.
    pub fn heed(&self, metadata: Option<&Metadata>) -> bool {
        let Some(metadata) = metadata.filter(|metadata| !metadata.error.is_empty()) else {
            return false;
        };
        if metadata.status.is_some() {
            self.has_failed(Some(metadata));
            if self.asks_many() {
                self.failures.tell();
            }
        } else {
            let before = self.before_line(&metadata.hostname);
            warn(&format!("{before}{}", metadata.error));
        }
        metadata.status.is_some()
    }

    /// What stands before a line, where it must be said whose it is.
    pub fn before_line(&self, node: &str) -> String {
        if self.asks_many() {
            format!("{node}: ")
        } else {
            String::new()
        }
    }

    /// How the command ends: well, or with the nodes that failed.
    pub fn outcome(&self) -> Outcome {
        self.failures.outcome(self.nodes.len())
    }
}

/// A request that the endpoint passes on as it is to one other node.
pub fn passed_on<Q>(node: Option<&str>, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    if let Some(node) = node.and_then(|node| node.parse().ok()) {
        request.metadata_mut().insert("node", node);
    }
    request
}

fn to_nodes<Q>(message: Q, nodes: &[String]) -> Request<Q> {
    let mut request = Request::new(message);
    for node in nodes {
        if let Ok(value) = node.parse() {
            request.metadata_mut().append("nodes", value);
        }
    }
    request
}

impl Failures {
    fn add(&self, failed: Failed) {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(failed);
    }

    fn tell(&self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for failed in all.iter_mut().filter(|failed| !failed.told) {
            tell(&format!("node {}: {}", failed.node, failed.message));
            failed.told = true;
        }
    }

    /// Forgets them: the next round begins anew.
    fn outcome(&self, asked: usize) -> Outcome {
        if asked != 1 {
            self.tell();
        }
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let Some(first) = all.first() else {
            return Ok(());
        };
        let exit = first.exit;
        if asked == 1 {
            let message = format!("node {}: {}", first.node, first.message);
            return Err(Failure::new(exit, message));
        }
        Err(Failure::told(if all.len() < asked {
            Exit::Partial
        } else if all.iter().all(|failed| failed.exit == exit) {
            exit
        } else {
            Exit::Failed
        }))
    }
}
