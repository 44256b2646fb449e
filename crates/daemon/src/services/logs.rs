//! `Logs`: the journal's log lines as bytes, or a line an item.

use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use mainstay_api::common::{ContainerDriver, Data, Metadata};
use mainstay_api::machine::LogsRequest;
use mainstay_api::observe::LogItem;
use mainstay_journal::Timestamp;
use mainstay_journal::{LogChunk, LogError, LogQuery, LogStore, LogStream};
use tonic::Status;

use super::{Answers, not_served, shown};

/// The namespace of the node's own services.
const SYSTEM: &str = "system";
/// A line longer than this comes as several items: an item has to fit into a message.
const MOST_LINE_BYTES: usize = 4 << 20;

pub(super) async fn stream(
    store: &LogStore,
    request: LogsRequest,
) -> Result<Answers<Data>, Status> {
    let query = query(&request)?;
    let LogsRequest { namespace, id, .. } = request;
    if id.is_empty() {
        return Err(Status::invalid_argument(
            "no log is named; set id, such as \"mainstay\"",
        ));
    }
    let lines = match store.read(&id, query).await {
        Ok(lines) => lines,
        Err(LogError::NotFound { .. } | LogError::InvalidName { .. })
            if !matches!(namespace.as_str(), "" | SYSTEM) =>
        {
            return Err(not_served("machine.MachineService/Logs of containers"));
        }
        Err(LogError::NotFound { .. } | LogError::InvalidName { .. }) => {
            return Err(Status::not_found(format!(
                "log {:?} was not registered",
                shown(&id)
            )));
        }
        Err(error) => return Err(status(&error)),
    };
    Ok(Box::pin(stream::try_unfold(lines, next_data)))
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
    if ContainerDriver::try_from(request.driver).is_err() {
        return Err(Status::invalid_argument(format!(
            "driver {} is unknown; 0 is containerd, 1 is CRI",
            request.driver
        )));
    }
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
                let items = items_of(&chunk, channel, &mut unfinished);
                Some((items, Some((lines, unfinished))))
            }
            Ok(None) => None,
            Err(error) => Some((vec![Err(status(&error))], None)),
        }
    })
    .flat_map(stream::iter)
}

fn items_of(
    chunk: &LogChunk,
    channel: &str,
    unfinished: &mut Vec<u8>,
) -> Vec<Result<LogItem, Status>> {
    let item = |line: String, time: Option<Timestamp>| LogItem {
        channel: channel.to_owned(),
        line,
        timestamp: time.map_or(0, Timestamp::as_secs),
    };
    let mut items = Vec::new();
    if chunk.missed() {
        items.push(Ok(item(format!("({MISSED})"), Some(Timestamp::now()))));
    }
    for record in chunk.records() {
        unfinished.extend_from_slice(record.text);
        if record.partial && unfinished.len() < MOST_LINE_BYTES {
            continue;
        }
        items.push(Ok(item(
            String::from_utf8_lossy(unfinished).into_owned(),
            record.time,
        )));
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
