//! What executables in cells write: as a log with a name, and as the output of a process.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use mainstay_api::machine::LogsRequest;
use mainstay_api::observe::LogItem;
use mainstay_cells::{CellName, Cells, ExecutableName, FoundRun, Run};
use mainstay_journal::{LogChunk, LogError, LogQuery, LogStream, Stream as Channel, Timestamp};
use tonic::Status;

use super::{Answers, logs, shown};
use crate::node::Node;

/// The namespace of the node's own workloads.
pub(super) const NAMESPACE: &str = "mainstay";

/// Whether a log of an executable is asked for: in our namespace, or by a name that no log of the
/// node itself can have.
pub(super) fn is_meant(request: &LogsRequest) -> bool {
    match request.namespace.as_str() {
        NAMESPACE => true,
        "" | logs::SYSTEM => parse(&request.id).is_some(),
        _ => false,
    }
}

/// A log by the name `<cell>/<executable>`.
pub(super) async fn read(
    node: &Node,
    request: &LogsRequest,
    query: LogQuery,
) -> Result<LogStream, Status> {
    let (cell, executable) = parse(&request.id).ok_or_else(|| logs::not_registered(&request.id))?;
    if request.previous {
        return Err(Status::invalid_argument(
            "the log of an executable goes on when it is started again; ask with since instead",
        ));
    }
    let read = node
        .engines
        .cells
        .logs()
        .read(&executable.key(&cell), query)
        .await;
    read.map_err(|error| match error {
        LogError::NotFound { .. } => logs::not_registered(&request.id),
        error => logs::status(&error),
    })
}

/// The cell and the executable that `<cell>/<executable>` names.
pub(super) fn parse(id: &str) -> Option<(CellName, ExecutableName)> {
    let (cell, executable) = id.rsplit_once('/')?;
    Some((cell.parse().ok()?, executable.parse().ok()?))
}

/// What a process of ours wrote to one of its outputs, from its first line to its last.
pub(super) async fn of_process(
    node: &Node,
    pid: i64,
    channel: Channel,
) -> Result<Answers<LogItem>, Status> {
    let found = i32::try_from(pid)
        .ok()
        .and_then(|pid| node.engines.cells.find_run(pid));
    let found = found.ok_or_else(|| {
        let pid = shown(&pid.to_string());
        Status::not_found(format!(
            "process {pid} is not one that this node has started"
        ))
    })?;
    let query = LogQuery {
        since: Some(found.run.started()),
        until: end_of(&found.run),
        follow: found.run.is_running(),
        ..LogQuery::default()
    };
    let lines = node.engines.cells.logs().read(&found.log, query).await;
    let lines = lines.map_err(|error| logs::status(&error))?;
    let output = Output {
        ended: found
            .run
            .is_running()
            .then(|| until_ended(node.engines.cells.clone(), found.clone())),
        until: None,
        name: format!("{}::{}", found.executable, channel.as_str()),
        channel,
        lines,
        unfinished: Vec::new(),
    };
    Ok(Box::pin(output.items()))
}

fn end_of(run: &Run) -> Option<Timestamp> {
    run.end.map(|end| Timestamp::from_nanos(end.at))
}

type Ended = Pin<Box<dyn Future<Output = Run> + Send>>;

fn until_ended(cells: Cells, found: FoundRun) -> Ended {
    Box::pin(async move { cells.until_ended(&found).await })
}

struct Output {
    lines: LogStream,
    channel: Channel,
    name: String,
    unfinished: Vec<u8>,
    /// Missing once the process has ended.
    ended: Option<Ended>,
    /// What comes later is not its own: others that it started may still write.
    until: Option<Timestamp>,
}

impl Output {
    fn items(self) -> impl Stream<Item = Result<LogItem, Status>> + Send {
        stream::unfold(Some(self), |output| async move {
            let mut output = output?;
            match output.next().await {
                Ok(Some(chunk)) => Some((output.items_of(&chunk), Some(output))),
                Ok(None) => None,
                Err(error) => Some((vec![Err(logs::status(&error))], None)),
            }
        })
        .flat_map(stream::iter)
    }

    async fn next(&mut self) -> Result<Option<LogChunk>, LogError> {
        while let Some(ended) = &mut self.ended {
            let run = tokio::select! {
                biased;
                chunk = self.lines.next() => return chunk,
                run = ended => run,
            };
            // All it wrote is in the log by now.
            self.until = end_of(&run);
            self.lines.finish();
            self.ended = None;
        }
        self.lines.next().await
    }

    fn items_of(&mut self, chunk: &LogChunk) -> Vec<Result<LogItem, Status>> {
        let (channel, until) = (self.channel, self.until);
        let is_its_own = |time: Option<Timestamp>| match (time, until) {
            (Some(time), Some(until)) => time <= until,
            _ => true,
        };
        let wanted = |record: &mainstay_journal::Record<'_>| {
            record.stream == channel && is_its_own(record.time)
        };
        logs::items_of(chunk, &self.name, wanted, &mut self.unfinished)
    }
}
