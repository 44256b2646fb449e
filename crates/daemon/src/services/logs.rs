//! `Logs`: the journal's log lines as bytes, or a line an item; and those of containers, from the
//! files their runtimes write.

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use mainstay_api::common::{Data, Metadata};
use mainstay_api::machine::LogsRequest;
use mainstay_api::observe::LogItem;
use mainstay_containers::{ContainerError, Driver, Instance, LogFile};
use mainstay_journal::{LogChunk, LogError, LogQuery, LogStream, Record, Timestamp};
use tonic::Status;

use super::{Answers, cell_logs, containers, shown};
use crate::node::Node;

/// The namespace of the node's own services.
pub(super) const SYSTEM: &str = "system";
/// A line longer than this comes as several items: an item has to fit into a message, of which
/// most clients take 4 MiB. The last record may go beyond by 16 KiB, and bytes that are no text
/// take four times their room.
const MOST_LINE_BYTES: usize = 960 << 10;

pub(super) async fn stream(node: &Node, request: LogsRequest) -> Result<Answers<Data>, Status> {
    let driver = containers::driver(request.driver)?;
    let query = query(&request)?;
    if request.id.is_empty() {
        return Err(Status::invalid_argument(
            "no log is named; set id, such as \"mainstay\"",
        ));
    }
    if cell_logs::is_meant(&request) {
        let lines = cell_logs::read(node, &request, query).await?;
        return Ok(Box::pin(stream::try_unfold(lines, next_data)));
    }
    let lines = match node.engines.journal.logs.read(&request.id, query).await {
        Ok(_) if request.previous => {
            return Err(Status::invalid_argument(format!(
                "log {:?} is the node's own; only a container has a previous one",
                request.id
            )));
        }
        Ok(lines) => lines,
        Err(LogError::NotFound { .. } | LogError::InvalidName { .. })
            if !matches!(request.namespace.as_str(), "" | SYSTEM) =>
        {
            of_container(node, &request, driver, query).await?
        }
        Err(LogError::NotFound { .. } | LogError::InvalidName { .. }) => {
            return Err(not_registered(&request.id));
        }
        Err(error) => return Err(status(&error)),
    };
    Ok(Box::pin(stream::try_unfold(lines, next_data)))
}

async fn of_container(
    node: &Node,
    request: &LogsRequest,
    driver: Driver,
    query: LogQuery,
) -> Result<LogStream, Status> {
    let instance = if request.previous {
        Instance::Previous
    } else {
        Instance::Current
    };
    let engine = containers::engine(node);
    let found = engine.log(&request.namespace, &request.id, driver, instance);
    let file = found.await.map_err(|error| match error {
        ContainerError::NotFound { .. } => not_registered(&request.id),
        error => containers::status(&error),
    })?;
    if !file.timed && (query.since.is_some() || query.until.is_some()) {
        return Err(Status::failed_precondition(format!(
            "the lines of log {:?} carry no times; ask without since and until",
            shown(&request.id)
        )));
    }
    let lines = node.engines.journal.logs.read_file(&file.path, query).await;
    lines.map_err(|error| file_status(&request.id, &file, &error))
}

pub(super) fn not_registered(id: &str) -> Status {
    Status::not_found(format!("log {:?} was not registered", shown(id)))
}

fn file_status(id: &str, file: &LogFile, error: &LogError) -> Status {
    let (id, path) = (shown(id), file.path.display());
    match error {
        LogError::NotFound { .. } => Status::not_found(format!(
            "log {id:?} was not registered: {path} is not there, not yet or no more"
        )),
        LogError::Open { source, .. } => {
            Status::failed_precondition(format!("log {id:?} cannot be read: {path}: {source}"))
        }
        error => status(error),
    }
}

async fn next_data(mut lines: LogStream) -> Result<Option<(Data, LogStream)>, Status> {
    while let Some(chunk) = lines.next().await.map_err(|error| status(&error))? {
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
    Ok(LogQuery {
        tail,
        since: request.since.map(timestamp).transpose()?,
        until: request.until.map(timestamp).transpose()?,
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

/// Lines one by one, each with its second.
pub(super) fn items(
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
            Err(error) => Some((vec![Err(status(&error))], None)),
        }
    })
    .flat_map(stream::iter)
}

pub(super) fn items_of(
    chunk: &LogChunk,
    channel: &str,
    wanted: impl Fn(&Record<'_>) -> bool,
    unfinished: &mut Vec<u8>,
) -> Vec<Result<LogItem, Status>> {
    let item = |line: &[u8], time: Option<Timestamp>| {
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
        }
    };
    let mut items = Vec::new();
    if chunk.missed() {
        let line = format!("({MISSED})");
        items.push(Ok(item(line.as_bytes(), Some(Timestamp::now()))));
    }
    for record in chunk.records().filter(|record| wanted(record)) {
        unfinished.extend_from_slice(record.text);
        if record.partial && unfinished.len() < MOST_LINE_BYTES {
            continue;
        }
        items.push(Ok(item(unfinished, record.time)));
        unfinished.clear();
    }
    items
}

pub(super) fn status(error: &LogError) -> Status {
    match error {
        LogError::NotFound { .. } => Status::not_found(error.to_string()),
        LogError::InvalidName { .. } => Status::invalid_argument(error.to_string()),
        _ => Status::internal(error.to_string()),
    }
}
