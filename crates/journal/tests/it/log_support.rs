//! Helpers of the log tests: reading logs and their plain files.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay_journal::cri::parse_line;
use mainstay_journal::{
    LogChunk, LogLimits, LogQuery, LogStore, LogStream, LogWriter, Stream, Timestamp,
};

use crate::support::block_on;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) time: Option<Timestamp>,
    pub(crate) stream: Stream,
    pub(crate) partial: bool,
    pub(crate) text: Vec<u8>,
}

pub(crate) fn lines_of(chunk: &LogChunk) -> impl Iterator<Item = Line> {
    chunk.records().map(|record| Line {
        time: record.time,
        stream: record.stream,
        partial: record.partial,
        text: record.text.to_vec(),
    })
}

pub(crate) async fn drain(stream: &mut LogStream) -> Vec<Line> {
    let mut lines = Vec::new();
    while let Some(chunk) = stream.next().await.unwrap() {
        lines.extend(lines_of(&chunk));
    }
    lines
}

/// Returns the lines of a query, to the end of the stream.
pub(crate) fn read(root: &Path, log: &str, query: LogQuery) -> Vec<Line> {
    block_on(async {
        let store = LogStore::open(root).unwrap();
        drain(&mut store.read(log, query).await.unwrap()).await
    })
}

/// The logical lines of everything kept.
pub(crate) fn texts(root: &Path, log: &str) -> Vec<Vec<u8>> {
    let mut open = [Vec::new(), Vec::new()];
    let mut texts = Vec::new();
    for line in read(root, log, LogQuery::default()) {
        let open = &mut open[usize::from(line.stream == Stream::Stderr)];
        open.extend_from_slice(&line.text);
        if !line.partial {
            texts.push(std::mem::take(open));
        }
    }
    texts
}

/// The first file of a log.
pub(crate) fn first_file(root: &Path, log: &str) -> PathBuf {
    root.join(log).join("0000000001.log")
}

pub(crate) fn files(root: &Path, log: &str) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(root.join(log))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    paths.sort();
    paths
}

/// The records of each file, read without the journal's reader.
pub(crate) fn plainly(root: &Path, log: &str) -> Vec<Vec<Line>> {
    files(root, log)
        .iter()
        .map(|path| {
            let bytes = fs::read(path).unwrap();
            let mut lines: Vec<_> = bytes.split(|byte| *byte == b'\n').map(plain_line).collect();
            if bytes.is_empty() || bytes.ends_with(b"\n") {
                lines.pop();
            }
            lines
        })
        .collect()
}

fn plain_line(line: &[u8]) -> Line {
    let record = parse_line(line);
    Line {
        time: record.time,
        stream: record.stream,
        partial: record.partial,
        text: record.text.to_vec(),
    }
}

pub(crate) fn at(seconds: i64) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000)
}

pub(crate) fn open(root: &Path) -> LogWriter {
    LogWriter::open(root, "app", LogLimits::default()).unwrap()
}
