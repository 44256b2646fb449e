//! The start of a sequence on nodes and the wait for it, for reboot, shutdown and reset.

mod progress;

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use mainstay_client::format::parse_duration;
use mainstay_client::sequence::{
    Awaited, NodeOutcome, SequenceEnd, await_serving, follow_sequence, roll,
};
use mainstay_client::{Client, Options, request_to_node};
use serde_json::json;
use tokio::time::Instant;
use tonic::{Request, Status};

use crate::cli::{Format, Global};
use crate::connection::Connection;
use crate::failure::{Exit, Failure, Outcome, print_error};
use crate::output;
use progress::Progress;

/// Options of waiting for a sequence.
#[derive(Debug, Args)]
pub struct WaitOptions {
    /// Return once the node has accepted the request
    #[arg(long)]
    no_wait: bool,

    /// Wait at most TIME for each node
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    wait_timeout: Duration,

    /// Nodes that may be down at once, of those named with -n
    #[arg(long, value_name = "N", default_value = "1")]
    max_unavailable: NonZeroUsize,
}

/// A sequence as a command starts it.
pub struct Sequence<'a> {
    /// As its events name it.
    pub name: &'static str,
    /// The result in words: `rebooted`.
    pub done: &'static str,
    /// Whether the node serves again afterwards.
    pub returns: bool,
    /// Whether the node may have another CA afterwards.
    pub replaces_identity: bool,
    /// Bounds the call that starts it; the timeout of an answer by default.
    pub start_timeout: Option<Duration>,
    pub wait: &'a WaitOptions,
}

/// The result of a sequence on one node.
struct Report {
    actor_id: String,
    result: &'static str,
    text: String,
}

impl Sequence<'_> {
    /// Runs the sequence on every node in turn. `start` makes the call, over a
    /// connection of its own, and returns the actor id.
    pub async fn run<F>(
        &self,
        global: &Global,
        client: &Connection,
        start: impl Fn(Arc<Client>, Request<()>) -> F,
    ) -> Outcome
    where
        F: Future<Output = Result<String, Status>>,
    {
        let nodes: Vec<Option<String>> = match client.nodes() {
            [] => vec![None],
            nodes => nodes.iter().cloned().map(Some).collect(),
        };
        let progress = Progress::new(nodes.len() > 1);
        let options = global.options();
        let work = |node: Option<String>| self.on_node(client, &options, node, &start, &progress);
        let rolled = roll(nodes.clone(), self.wait.max_unavailable, work);
        let outcomes = tokio::select! {
            outcomes = rolled => outcomes,
            signal = tokio::signal::ctrl_c() => {
                signal?;
                progress.finish();
                return Err(Failure::new(
                    Exit::Interrupted,
                    format!(
                        "interrupted; a {} that has begun continues on its node: mainstay events \
                         -f shows it",
                        self.name
                    ),
                ));
            }
        };
        progress.finish();
        self.report(global, client, &nodes, outcomes)
    }

    async fn on_node<F>(
        &self,
        client: &Connection,
        options: &Options,
        node: Option<String>,
        start: &impl Fn(Arc<Client>, Request<()>) -> F,
        progress: &Progress,
    ) -> Outcome<Report>
    where
        F: Future<Output = Result<String, Status>>,
    {
        let name = node.clone().unwrap_or_else(|| client.node_name(None));
        let asked = Instant::now();
        // A connection of its own: the sequence of the node before may have ended the first one.
        let own = Arc::new(Client::connect(options, |_| {}).await?);
        let call = start(Arc::clone(&own), request_to_node(node.as_deref(), ()));
        let timeout = self.start_timeout.unwrap_or_default();
        let actor_id = own.within_timeout(timeout, call).await?;
        if self.wait.no_wait {
            let text = format!("{} started (actor {actor_id})", self.name);
            return Ok(Report {
                actor_id,
                result: "started",
                text,
            });
        }
        let awaited = Awaited {
            options,
            node: node.as_deref(),
            actor_id: &actor_id,
            asked,
            deadline: asked + self.wait.wait_timeout,
            replaces_identity: self.replaces_identity,
        };
        let line = progress.node(&name);
        let end = follow_sequence(&awaited, |step| line.step(&step)).await?;
        let (result, text) = match end {
            SequenceEnd::Done => ("done", self.done.to_owned()),
            SequenceEnd::IdentityReplaced => (
                "done",
                format!(
                    "{}; it has a new CA, and this client configuration is no longer valid",
                    self.done
                ),
            ),
            SequenceEnd::Failed { preempted, reason } => {
                let verb = if preempted { "preempted" } else { "failed" };
                let reason = reason.trim_start_matches("preempted by ");
                let by = if preempted { " by" } else { ":" };
                return Err(Failure::new(
                    Exit::Failed,
                    format!("{} {verb}{by} {reason}", self.name),
                ));
            }
        };
        if self.returns && end == SequenceEnd::Done {
            await_serving(&awaited, |step| line.step(&step)).await?;
        }
        line.finish();
        Ok(Report {
            actor_id,
            result,
            text,
        })
    }

    fn report(
        &self,
        global: &Global,
        client: &Connection,
        nodes: &[Option<String>],
        outcomes: Vec<NodeOutcome<Report, Failure>>,
    ) -> Outcome {
        let mut rows = Vec::new();
        let mut failures = Vec::new();
        for (node, outcome) in nodes.iter().zip(outcomes) {
            let name = node.clone().unwrap_or_else(|| client.node_name(None));
            let prefix = client.message_prefix(&name);
            let row = match outcome {
                NodeOutcome::Done(report) => {
                    if global.output == Format::Table {
                        output::print(&format!("{prefix}{}\n", report.text))?;
                    }
                    json!({
                        "node": name,
                        "sequence": self.name,
                        "result": report.result,
                        "actor_id": report.actor_id,
                    })
                }
                NodeOutcome::Failed(failure) => {
                    let row = json!({
                        "node": name,
                        "sequence": self.name,
                        "result": "failed",
                        "error": failure.message,
                    });
                    failures.push((prefix, failure));
                    row
                }
                NodeOutcome::Untouched => {
                    if global.output == Format::Table {
                        output::print(&format!("{prefix}not begun\n"))?;
                    }
                    json!({ "node": name, "sequence": self.name, "result": "untouched" })
                }
            };
            rows.push(row);
        }
        match global.output {
            Format::Table => {}
            format => output::print_document(format, &json!(rows))?,
        }
        let Some((_, first)) = failures.first() else {
            return Ok(());
        };
        let exit = match failures.len() == nodes.len() {
            true => first.exit,
            false => Exit::Partial,
        };
        if nodes.len() == 1 {
            return Err(failures.swap_remove(0).1);
        }
        for (prefix, failure) in &failures {
            print_error(&format!("{prefix}{}", failure.message));
        }
        Err(Failure::printed(exit))
    }
}
