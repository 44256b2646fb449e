//! `Logs`: log lines of the node and its workloads, as bytes or a line an item.

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use mainstay_api::common::{Data, Metadata};
use mainstay_api::machine::{LogsContainer, LogsContainersResponse, LogsRequest};
use mainstay_api::observe::LogItem;
use mainstay_api::{Reply, envelope};
use mainstay_journal::{LogChunk, LogQuery, LogStream, Record, Timestamp};
use tonic::Status;

use super::kernel_log;
use crate::log::DAEMON_LOG;
use crate::node::Node;
use crate::rpc::{Answers, status};
use crate::services::os::scope;
use crate::text::close_matches;
use crate::workloads::{LogSelector, ProcessOutput, SYSTEM_NAMESPACE, WorkloadError};

/// Longer lines come as several items: an item has to fit into a message, of which most clients
/// accept 4 MiB. The last record may exceed it by 16 KiB, and bytes that are not UTF-8 take four
/// times their size.
const MAX_LINE_BYTES: usize = 960 << 10;
/// Logs named in the error about one that does not exist.
const MAX_NAMED: usize = 8;

pub(super) async fn stream(node: &Node, request: LogsRequest) -> Result<Answers<Data>, Status> {
    let scope = scope(&request.namespace, request.driver)?;
    let query = query(&request)?;
    if request.id.is_empty() {
        return Err(Status::invalid_argument(
            "no log is named; set id, such as \"mainstay\"",
        ));
    }
    if request.id == kernel_log::ID && matches!(scope.namespace, "" | SYSTEM_NAMESPACE) {
        if request.previous {
            let error = WorkloadError::NoPreviousLog { id: request.id };
            return Err(status::of_workloads(&error));
        }
        return kernel_log::stream(query).await;
    }
    let log = LogSelector {
        scope,
        id: &request.id,
        previous: request.previous,
    };
    match node.workloads.log(log, query).await {
        Ok(lines) => Ok(Box::pin(stream::try_unfold(lines, next_data))),
        Err(error @ WorkloadError::NoSuchLog { .. }) => {
            let known = ids(node).await;
            let known = known.map_or_else(|_| Vec::new(), |ids| ids.into_messages().remove(0).ids);
            Err(no_such_log(&error, &request.id, &known))
        }
        Err(error) => Err(status::of_workloads(&error)),
    }
}

/// Adds the logs that may be meant.
fn no_such_log(error: &WorkloadError, id: &str, known: &[String]) -> Status {
    let status = status::of_workloads(error);
    let close = close_matches(id, known.iter().map(String::as_str));
    let hint = match (close.as_slice(), known) {
        ([], []) => return status,
        ([], known) => {
            let shown = known.get(..MAX_NAMED).unwrap_or(known);
            format!("this node has {}", shown.join(", "))
        }
        (close, _) => format!("close matches: {}", close.join(", ")),
    };
    Status::new(status.code(), format!("{}; {hint}", status.message()))
}

/// `LogsContainers`: the logs that can be read without naming a namespace.
pub(super) async fn ids(node: &Node) -> Result<LogsContainersResponse, Status> {
    let ids = node.workloads.log_ids().await;
    let mut ids = ids.map_err(|error| status::of_workloads(&error))?;
    // Among the node's own, which follow those of its workloads.
    let place = ids.iter().position(|id| id == DAEMON_LOG);
    ids.insert(place.unwrap_or(ids.len()), kernel_log::ID.to_owned());
    Ok(envelope(LogsContainer {
        metadata: None,
        ids,
    }))
}

async fn next_data(mut lines: LogStream) -> Result<Option<(Data, LogStream)>, Status> {
    while let Some(chunk) = lines
        .next()
        .await
        .map_err(|error| status::of_logs(&error))?
    {
        let mut text = Vec::new();
        chunk.append_text(&mut text);
        if chunk.missed() || !text.is_empty() {
            let metadata = chunk.missed().then(missed);
            return Ok(Some((
                Data {
                    metadata,
                    bytes: Bytes::from(text),
                },
                lines,
            )));
        }
    }
    Ok(None)
}

const MISSED: &str = "lines were removed by rotation before they could be read";

fn missed() -> Metadata {
    Metadata {
        error: MISSED.to_owned(),
        ..Metadata::default()
    }
}

fn query(request: &LogsRequest) -> Result<LogQuery, Status> {
    let tail = match request.tail_lines {
        -1 => None,
        lines => Some(u64::try_from(lines).map_err(|_| {
            Status::invalid_argument(format!(
                "tail_lines is {lines}; it is a number of lines, or -1 for all"
            ))
        })?),
    };
    let since = request.since.map(timestamp).transpose()?;
    let until = request.until.map(timestamp).transpose()?;
    if since.zip(until).is_some_and(|(since, until)| since > until) {
        return Err(Status::invalid_argument("since is after until"));
    }
    Ok(LogQuery {
        tail,
        since,
        until,
        follow: request.follow,
    })
}

fn timestamp(time: prost_types::Timestamp) -> Result<Timestamp, Status> {
    time.seconds
        .checked_mul(1_000_000_000)
        .and_then(|nanos| nanos.checked_add(i64::from(time.nanos)))
        .map(Timestamp::from_nanos)
        .ok_or_else(|| Status::invalid_argument("a time is out of range (years 1678 to 2262)"))
}

/// Streams every line of a log as an item of `channel`.
pub(in crate::services) fn items(
    lines: LogStream,
    channel: &'static str,
) -> impl Stream<Item = Result<LogItem, Status>> + Send {
    let state = Some((lines, Vec::new()));
    stream::unfold(state, move |state| async move {
        let (mut lines, mut unfinished) = state?;
        match lines.next().await {
            Ok(Some(chunk)) => {
                let items = items_of(&chunk, channel, |_| true, &mut unfinished);
                Some((items, Some((lines, unfinished))))
            }
            Ok(None) => None,
            Err(error) => Some((vec![Err(status::of_logs(&error))], None)),
        }
    })
    .flat_map(stream::iter)
}

/// Streams every line of a process as an item.
pub(in crate::services) fn process_items(
    output: ProcessOutput,
) -> impl Stream<Item = Result<LogItem, Status>> + Send {
    let channel = format!("{}::{}", output.executable(), output.channel().as_str());
    let state = Some((output, Vec::new(), channel));
    stream::unfold(state, |state| async move {
        let (mut output, mut unfinished, channel) = state?;
        match output.next().await {
            Ok(Some(chunk)) => {
                let is_own = |record: &Record<'_>| output.is_own(record);
                let items = items_of(&chunk, &channel, is_own, &mut unfinished);
                Some((items, Some((output, unfinished, channel))))
            }
            Ok(None) => None,
            Err(error) => Some((vec![Err(status::of_logs(&error))], None)),
        }
    })
    .flat_map(stream::iter)
}

fn items_of(
    chunk: &LogChunk,
    channel: &str,
    wanted: impl Fn(&Record<'_>) -> bool,
    unfinished: &mut Vec<u8>,
) -> Vec<Result<LogItem, Status>> {
    let item = |line: &[u8], time: Option<Timestamp>, unterminated: bool| {
        let (line, raw) = match std::str::from_utf8(line) {
            Ok(text) => (text.to_owned(), Bytes::new()),
            Err(_) => {
                let text = String::from_utf8_lossy(line).into_owned();
                (text, Bytes::copy_from_slice(line))
            }
        };
        LogItem {
            channel: channel.to_owned(),
            line,
            timestamp: time.map_or(0, Timestamp::as_secs),
            raw,
            time_nanos: time.map_or(0, Timestamp::as_nanos),
            unterminated,
        }
    };
    let mut items = Vec::new();
    if chunk.missed() {
        let line = format!("({MISSED})");
        let timestamp = Timestamp::now().as_secs();
        // Not a line of the log: it has no place in its order of times.
        items.push(Ok(LogItem {
            timestamp,
            ..item(line.as_bytes(), None, false)
        }));
    }
    for record in chunk.records().filter(|record| wanted(record)) {
        unfinished.extend_from_slice(record.text);
        if record.partial && unfinished.len() < MAX_LINE_BYTES {
            continue;
        }
        items.push(Ok(item(unfinished, record.time, record.unterminated)));
        unfinished.clear();
    }
    items
}
