//! Calls to many nodes, and the result of each.

use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use mainstay_api::{FromNode, Reply};
use tonic::{Request, Response, Status};

use crate::call::within;
use crate::{Client, Error, Machine};

/// Nodes named in one call; the answers of all must fit into one message.
const MAX_NODES_PER_CALL: usize = 64;

/// The answer of one node.
#[derive(Debug)]
pub struct Answer<M> {
    /// The node as the user named it, else the endpoint.
    pub node: String,
    /// The message of that node.
    pub message: M,
}

/// The error of one node.
#[derive(Debug)]
pub struct NodeError {
    /// The node as the user named it.
    pub node: String,
    /// The reason.
    pub error: Error,
}

/// The results of a fan-out call, one per node.
#[derive(Debug)]
pub struct Replies<M> {
    /// Answers, in the order in which the user named the nodes.
    pub answers: Vec<Answer<M>>,
    /// Nodes that failed.
    pub errors: Vec<NodeError>,
}

impl Client {
    /// Calls every node with as few calls as possible; a forwarding node merges the answers.
    pub async fn call_all<Q, R, F>(
        &self,
        timeout: Duration,
        message: Q,
        call: impl Fn(Machine, Request<Q>) -> F,
    ) -> Result<Replies<R::Message>, Error>
    where
        Q: Clone,
        R: Reply,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        let calls = self.requests(&message).into_iter().map(|mut request| {
            request.set_timeout(timeout);
            call(self.machine(), request)
        });
        let replies = within(timeout, try_join_all(calls)).await?;
        let mut answers = Vec::new();
        let mut errors = Vec::new();
        for message in replies
            .into_iter()
            .flat_map(|reply| reply.into_inner().into_messages())
        {
            match message
                .metadata()
                .filter(|metadata| !metadata.error.is_empty())
            {
                Some(metadata) => errors.push(NodeError {
                    node: metadata.hostname.clone(),
                    error: Error::of_node(metadata),
                }),
                None => answers.push(Answer {
                    node: self.node_name(message.metadata()),
                    message,
                }),
            }
        }
        let position =
            |answer: &Answer<R::Message>| self.nodes().iter().position(|node| *node == answer.node);
        answers.sort_by_key(position);
        Ok(Replies { answers, errors })
    }

    /// Calls every node with a call of its own, for answers that cannot be merged.
    pub async fn call_each<Q, A, F>(
        &self,
        timeout: Duration,
        message: &Q,
        call: impl Fn(Request<Q>) -> F,
    ) -> Result<Replies<A>, Error>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        let ask = |node: Option<&str>| {
            let mut request = request_to_node(node, message.clone());
            request.set_timeout(timeout);
            within(timeout, call(request))
        };
        if self.nodes().is_empty() {
            let answer = Answer {
                node: self.node_name(None),
                message: ask(None).await?.into_inner(),
            };
            return Ok(Replies {
                answers: vec![answer],
                errors: Vec::new(),
            });
        }
        let replies = join_all(self.nodes().iter().map(|node| ask(Some(node)))).await;
        let mut answers = Vec::new();
        let mut errors = Vec::new();
        for (node, reply) in self.nodes().iter().cloned().zip(replies) {
            match reply {
                Ok(reply) => answers.push(Answer {
                    node,
                    message: reply.into_inner(),
                }),
                Err(error) => errors.push(NodeError { node, error }),
            }
        }
        Ok(Replies { answers, errors })
    }

    /// Returns a request for a stream of all nodes.
    pub fn request<Q>(&self, message: Q) -> Request<Q> {
        request_to_nodes(self.nodes(), message)
    }

    fn requests<Q: Clone>(&self, message: &Q) -> Vec<Request<Q>> {
        if self.nodes().is_empty() {
            return vec![Request::new(message.clone())];
        }
        self.nodes()
            .chunks(MAX_NODES_PER_CALL)
            .map(|nodes| request_to_nodes(nodes, message.clone()))
            .collect()
    }
}

/// Returns a request that the endpoint forwards to one node and whose answer it leaves as it is.
pub fn request_to_node<Q>(node: Option<&str>, message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    if let Some(node) = node.and_then(|node| node.parse().ok()) {
        request.metadata_mut().insert("node", node);
    }
    request
}

/// Returns a request that the endpoint forwards to `nodes`, merging their answers.
pub fn request_to_nodes<Q>(nodes: &[String], message: Q) -> Request<Q> {
    let mut request = Request::new(message);
    for node in nodes {
        if let Ok(value) = node.parse() {
            request.metadata_mut().append("nodes", value);
        }
    }
    request
}
