//! The connection of one command: it calls nodes, and collects the errors of single nodes until
//! the command ends.

use std::ops::Deref;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mainstay_api::Reply;
use mainstay_api::common::Metadata;
use mainstay_client::format::Table;
use mainstay_client::{Answer, Client, Error, Machine, NodeError, Replies};
use tonic::{Request, Response, Status};

use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome, print_error, warn};
use crate::output;

pub struct Connection {
    client: Client,
    /// The command line names nodes.
    named: bool,
    failed: Mutex<Vec<FailedNode>>,
}

struct FailedNode {
    failure: Failure,
    printed: bool,
}

impl Deref for Connection {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

impl Connection {
    pub async fn open(global: &Global) -> Outcome<Self> {
        Ok(Self {
            client: Client::connect(&global.options(), warn).await?,
            named: !global.nodes.is_empty(),
            failed: Mutex::default(),
        })
    }

    /// Calls every node within the client's timeout. Errors of nodes are kept for
    /// [`Connection::finish`], unless every node failed.
    pub async fn call_all<Q, R, F>(
        &self,
        message: Q,
        call: impl Fn(Machine, Request<Q>) -> F,
    ) -> Outcome<Vec<Answer<R::Message>>>
    where
        Q: Clone,
        R: Reply,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.call_all_within(self.timeout(), message, call).await
    }

    /// Calls every node as [`Connection::call_all`] does, with a timeout for slow answers.
    pub async fn call_all_within<Q, R, F>(
        &self,
        timeout: Duration,
        message: Q,
        call: impl Fn(Machine, Request<Q>) -> F,
    ) -> Outcome<Vec<Answer<R::Message>>>
    where
        Q: Clone,
        R: Reply,
        F: Future<Output = Result<Response<R>, Status>>,
    {
        self.answers(self.client.call_all(timeout, message, call).await?)
    }

    /// Calls every node with a call of its own, for answers that cannot be merged.
    pub async fn call_each<Q, A, F>(
        &self,
        timeout: Duration,
        message: &Q,
        call: impl Fn(Request<Q>) -> F,
    ) -> Outcome<Vec<Answer<A>>>
    where
        Q: Clone,
        F: Future<Output = Result<Response<A>, Status>>,
    {
        self.answers(self.client.call_each(timeout, message, call).await?)
    }

    fn answers<M>(&self, replies: Replies<M>) -> Outcome<Vec<Answer<M>>> {
        for failed in replies.errors {
            self.add(failed);
        }
        if replies.answers.is_empty() {
            self.finish()?;
        }
        Ok(replies.answers)
    }

    fn add(&self, failed: NodeError) {
        let failure = Failure::from(failed);
        let mut all = self.failed();
        // Of a command with several calls, the same error is reported once.
        let is_known = |known: &FailedNode| known.failure.message == failure.message;
        if !all.iter().any(is_known) {
            all.push(FailedNode {
                failure,
                printed: false,
            });
        }
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Vec<FailedNode>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the only node of a command that takes one; `None` for the endpoint itself.
    pub fn only_node(&self, command: &str) -> Outcome<Option<&str>> {
        match self.nodes() {
            [] => Ok(None),
            [node] => Ok(Some(node)),
            nodes => Err(Failure::usage(format!(
                "{command} takes one node, not {}; name it with -n NODE",
                nodes.len()
            ))),
        }
    }

    /// Reports the error or the warning in the metadata of a streamed message. Returns `true` for
    /// an error, which makes the message the node's last.
    pub fn report(&self, metadata: Option<&Metadata>) -> bool {
        let Some(metadata) = metadata.filter(|metadata| !metadata.error.is_empty()) else {
            return false;
        };
        if metadata.status.is_some() {
            self.add(NodeError {
                node: metadata.hostname.clone(),
                error: Error::of_node(metadata),
            });
            if self.has_many_nodes() {
                self.print_failed();
            }
        } else {
            let prefix = self.line_prefix(&metadata.hostname);
            warn(&format!("{prefix}{}", metadata.error));
        }
        metadata.status.is_some()
    }

    /// Prints a table; the column `NODE` only if nodes were asked for or several are called.
    pub fn print_table(&self, table: Table) -> Outcome {
        let table = match self.shows_nodes() {
            true => table,
            false => table.without_node(),
        };
        output::print(&table.to_string())
    }

    /// Returns `NODE: ` for a message about a node if nodes were asked for or several are called.
    pub fn message_prefix(&self, node: &str) -> String {
        match self.shows_nodes() {
            true => format!("{node}: "),
            false => String::new(),
        }
    }

    fn shows_nodes(&self) -> bool {
        self.named || self.has_many_nodes()
    }

    /// Returns `NODE: ` when lines come from several nodes.
    pub fn line_prefix(&self, node: &str) -> String {
        if self.has_many_nodes() {
            format!("{node}: ")
        } else {
            String::new()
        }
    }

    fn print_failed(&self) {
        for failed in self.failed().iter_mut().filter(|failed| !failed.printed) {
            print_error(&failed.failure.message);
            failed.printed = true;
        }
    }

    /// Returns the outcome of the command so far, and forgets the errors of nodes.
    pub fn finish(&self) -> Outcome {
        let called = self.nodes().len();
        if called != 1 {
            self.print_failed();
        }
        let mut failed = std::mem::take(&mut *self.failed());
        if failed.is_empty() {
            return Ok(());
        }
        let first = failed.swap_remove(0).failure;
        if called == 1 {
            return Err(first);
        }
        Err(Failure::printed(if failed.len() + 1 < called {
            Exit::Partial
        } else if failed.iter().all(|other| other.failure.exit == first.exit) {
            first.exit
        } else {
            Exit::Failed
        }))
    }
}
