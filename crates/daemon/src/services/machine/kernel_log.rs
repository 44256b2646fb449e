//! `Logs` of `kernel`: the kernel log with the selection that logs have: tail, times, follow.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::stream;
use mainstay_api::common::Data;
use mainstay_journal::{LogQuery, Timestamp};
use mainstay_node::kmsg;
use tonic::Status;

use crate::rpc::Answers;
use crate::services::os::dmesg::{Message, Messages};

/// The id of the kernel log.
pub(super) const ID: &str = crate::log::KERNEL_LOG;

/// The first record of the last lines, and the last record there was.
#[derive(Debug, Clone, Copy)]
struct Tail {
    first: u64,
    /// Lines of the first record that are not among the last ones.
    skipped_lines: usize,
    last: u64,
}

struct KernelLines {
    messages: Messages,
    query: LogQuery,
    tail: Option<Tail>,
}

pub(super) async fn stream(query: LogQuery) -> Result<Answers<Data>, Status> {
    let none = query.tail == Some(0);
    let from = if none {
        kmsg::From::Now
    } else {
        kmsg::From::Oldest
    };
    let tail = match query.tail {
        Some(lines) if !none => find_tail(&query, lines).await?,
        _ => None,
    };
    let lines = KernelLines {
        messages: Messages::open(from, query.follow)?,
        query,
        tail,
    };
    Ok(Box::pin(stream::try_unfold(lines, |mut lines| async {
        Ok(lines.next().await?.map(|data| (data, lines)))
    })))
}

/// Finds where the last lines start. Only numbers are kept: the records are read again.
async fn find_tail(query: &LogQuery, wanted: u64) -> Result<Option<Tail>, Status> {
    let wanted = usize::try_from(wanted).unwrap_or(usize::MAX);
    let mut messages = Messages::open(kmsg::From::Oldest, false)?;
    let mut records: VecDeque<(u64, usize)> = VecDeque::new();
    let mut lines = 0;
    while let Some(message) = messages.next().await? {
        // The ring may be long, and reading it never waits.
        tokio::task::coop::consume_budget().await;
        let Message::Record {
            sequence,
            time,
            text,
        } = message
        else {
            continue;
        };
        if !is_within(query, time) {
            continue;
        }
        let count = text.iter().filter(|byte| **byte == b'\n').count();
        records.push_back((sequence, count));
        lines += count;
        while let Some((_, oldest)) = records
            .front()
            .filter(|(_, oldest)| lines - oldest >= wanted)
        {
            lines -= oldest;
            records.pop_front();
        }
    }
    let ends = records.front().zip(records.back());
    Ok(ends.map(|((first, _), (last, _))| Tail {
        first: *first,
        skipped_lines: lines.saturating_sub(wanted),
        last: *last,
    }))
}

fn is_within(query: &LogQuery, time: Timestamp) -> bool {
    query.since.is_none_or(|since| time >= since) && query.until.is_none_or(|until| time <= until)
}

impl KernelLines {
    async fn next(&mut self) -> Result<Option<Data>, Status> {
        loop {
            // As above: records that are skipped do not wait either.
            tokio::task::coop::consume_budget().await;
            let Some(message) = self.next_message().await? else {
                return Ok(None);
            };
            let Message::Record {
                sequence,
                time,
                mut text,
            } = message
            else {
                return Ok(Some(message.into_data()));
            };
            if self.query.until.is_some_and(|until| time > until) {
                return Ok(None);
            }
            if self.query.since.is_some_and(|since| time < since) {
                continue;
            }
            if let Some(tail) = self.tail {
                if sequence < tail.first {
                    continue;
                }
                if sequence == tail.first {
                    remove_lines(&mut text, tail.skipped_lines);
                }
                if sequence > tail.last && !self.query.follow {
                    return Ok(None);
                }
            }
            let record = Message::Record {
                sequence,
                time,
                text,
            };
            return Ok(Some(record.into_data()));
        }
    }

    /// Waits for the next message no longer than until the end of the times asked for.
    async fn next_message(&mut self) -> Result<Option<Message>, Status> {
        match self.query.until {
            None => self.messages.next().await,
            Some(until) => tokio::time::timeout(time_to(until), self.messages.next())
                .await
                .unwrap_or(Ok(None)),
        }
    }
}

fn remove_lines(text: &mut Vec<u8>, lines: usize) {
    if let Some(last) = lines.checked_sub(1) {
        let mut ends = (0..text.len()).filter(|index| text[*index] == b'\n');
        let end = ends.nth(last).map_or(text.len(), |end| end + 1);
        text.drain(..end);
    }
}

fn time_to(until: Timestamp) -> Duration {
    let nanos = until.as_nanos().saturating_sub(Timestamp::now().as_nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_removed_from_the_front() {
        for (lines, left) in [
            (0, "a\n b\n c\n"),
            (1, " b\n c\n"),
            (2, " c\n"),
            (3, ""),
            (9, ""),
        ] {
            let mut text = b"a\n b\n c\n".to_vec();
            remove_lines(&mut text, lines);
            assert_eq!(text, left.as_bytes(), "{lines}");
        }
    }
}
