//! Reference reader of a log file: all of it, forwards.

use mainstay_journal::cri::parse_line;
use mainstay_journal::{Record, Stream, Timestamp};

/// One record that owns its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub time: Option<Timestamp>,
    pub stream: Stream,
    pub partial: bool,
    pub text: Vec<u8>,
}

impl From<Record<'_>> for Line {
    fn from(record: Record<'_>) -> Self {
        Self {
            time: record.time,
            stream: record.stream,
            partial: record.partial,
            text: record.text.to_vec(),
        }
    }
}

/// Returns every record of a file; a last line without a newline is one too.
pub fn lines(bytes: &[u8]) -> Vec<Line> {
    let mut lines: Vec<_> = bytes
        .split(|byte| *byte == b'\n')
        .map(|line| Line::from(parse_line(line)))
        .collect();
    if bytes.is_empty() || bytes.ends_with(b"\n") {
        lines.pop();
    }
    lines
}

/// From the first record not older than `since` to the last before one newer than `until`.
pub fn window(lines: &[Line], since: Option<Timestamp>, until: Option<Timestamp>) -> &[Line] {
    let first = |reached: &dyn Fn(Timestamp) -> bool| {
        lines
            .iter()
            .position(|line| line.time.is_some_and(reached))
            .unwrap_or(lines.len())
    };
    let start = since.map_or(0, |since| first(&|time| time >= since));
    let end = until.map_or(lines.len(), |until| first(&|time| time > until));
    &lines[start.min(end)..end]
}

/// Returns the records of the last `count` logical lines, ordered by their ends; an unfinished line
/// ends with its last record.
pub fn last_lines(lines: &[Line], count: usize) -> Vec<Line> {
    let mut logical: Vec<Vec<usize>> = Vec::new();
    let mut open = [Vec::new(), Vec::new()];
    for (at, line) in lines.iter().enumerate() {
        let own = &mut open[usize::from(line.stream == Stream::Stderr)];
        own.push(at);
        if !line.partial {
            logical.push(std::mem::take(own));
        }
    }
    logical.extend(open.into_iter().filter(|own| !own.is_empty()));
    logical.sort_by_key(|own| own.last().copied());
    let skipped = logical.len().saturating_sub(count);
    let mut wanted = logical.split_off(skipped).concat();
    wanted.sort_unstable();
    wanted.into_iter().map(|at| lines[at].clone()).collect()
}
