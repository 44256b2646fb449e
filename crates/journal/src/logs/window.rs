//! The part of one file between two times.
//!
//! Takes the lines of the file in order. The part begins with the first record not older than
//! `since` and ends before the first one newer than `until`; lines without a time belong to those
//! before them.

use crate::Timestamp;
use crate::cri::{line_len, parse_ended};

use super::query::LogQuery;

#[derive(Debug)]
pub(super) struct Window {
    /// `None` once the beginning has been found.
    since: Option<Timestamp>,
    until: Option<Timestamp>,
    passed: bool,
}

impl Window {
    /// With `begun`, the first line is known to be inside.
    pub(super) fn new(query: &LogQuery, begun: bool) -> Self {
        Self {
            since: query.since.filter(|_| !begun),
            until: query.until,
            passed: false,
        }
    }

    /// True if nothing that follows in this file is inside.
    pub(super) fn passed(&self) -> bool {
        self.passed
    }

    /// Removes the lines outside.
    pub(super) fn keep(&mut self, mut lines: Vec<u8>) -> Vec<u8> {
        if let Some(since) = self.since {
            let start = first_line_where(&lines, |time| time >= since);
            lines.drain(..start);
            if lines.is_empty() {
                return lines;
            }
            self.since = None;
        }
        if let Some(until) = self.until
            && last_time(&lines).is_some_and(|time| time > until)
        {
            lines.truncate(first_line_where(&lines, |time| time > until));
            self.passed = true;
        }
        lines
    }
}

/// Returns the index of the first line with a time that `wanted` accepts, or the length.
fn first_line_where(lines: &[u8], wanted: impl Fn(Timestamp) -> bool) -> usize {
    let mut at = 0;
    while at < lines.len() {
        let line = &lines[at..at + line_len(&lines[at..])];
        if parse_ended(line).time.is_some_and(&wanted) {
            break;
        }
        at += line.len();
    }
    at
}

fn last_time(mut lines: &[u8]) -> Option<Timestamp> {
    while !lines.is_empty() {
        let before_newline = &lines[..lines.len() - 1];
        let start = before_newline
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if let Some(time) = parse_ended(&lines[start..]).time {
            return Some(time);
        }
        lines = &lines[..start];
    }
    None
}
