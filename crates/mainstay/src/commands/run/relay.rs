//! Forwards output lines of the program to stdout or stderr.

use futures_util::{Stream, StreamExt};
use mainstay_api::observe::LogItem;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tonic::Status;

use crate::failure::{Failure, Outcome};

/// Received lines written at once.
const MAX_BATCH_LINES: usize = 256;

/// How much of a stream has been written: the time of the last line, and the number of lines of that
/// time. Lines are ordered by time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) time_nanos: i64,
    lines: u64,
}

impl Position {
    fn advance(&mut self, time_nanos: i64) {
        if time_nanos > self.time_nanos {
            *self = Self {
                time_nanos,
                lines: 0,
            };
        }
        self.lines += u64::from(time_nanos == self.time_nanos);
    }
}

/// Writes the stream to its end: each line unchanged, followed by a newline if it had one. The stream
/// starts at the time of `position`; lines that were written before are skipped.
pub(super) async fn relay(
    lines: impl Stream<Item = Result<LogItem, Status>> + Unpin,
    (name, mut out): (&str, impl AsyncWrite + Unpin),
    position: &mut Position,
) -> Outcome {
    let mut known = *position;
    let mut lines = lines.ready_chunks(MAX_BATCH_LINES);
    while let Some(chunk) = lines.next().await {
        let mut text = Vec::new();
        let mut failed = None;
        let mut reached = *position;
        for item in chunk {
            match item {
                Ok(item) if item.time_nanos == known.time_nanos && known.lines > 0 => {
                    known.lines -= 1;
                }
                Ok(item) => {
                    reached.advance(item.time_nanos);
                    let line = match &*item.raw {
                        b"" => item.line.as_bytes(),
                        raw => raw,
                    };
                    text.extend_from_slice(line);
                    if !item.unterminated {
                        text.push(b'\n');
                    }
                }
                Err(status) => failed = Some(status),
            }
        }
        // Before the write: a part of it may have been written when it fails.
        *position = reached;
        let failure = |error| Failure::stream(name, error);
        out.write_all(&text).await.map_err(failure)?;
        out.flush().await.map_err(failure)?;
        if let Some(status) = failed {
            return Err(status.into());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::{FutureExt, stream};

    use super::*;
    use crate::failure::Exit;

    fn line(text: &str) -> Result<LogItem, Status> {
        Ok(LogItem {
            line: text.to_owned(),
            ..LogItem::default()
        })
    }

    #[test]
    fn lines_before_an_error_are_written() {
        let lines = stream::iter([line("a"), line(""), line("\x1b[1mb"), {
            Err(Status::unavailable("the node is stopping"))
        }]);
        let mut out = Vec::new();
        let mut position = Position::default();
        let outcome = relay(lines, ("stdout", &mut out), &mut position)
            .now_or_never()
            .unwrap();
        assert_eq!(outcome.unwrap_err().exit, Exit::Unreachable);
        assert_eq!(out, b"a\n\n\x1b[1mb\n");
    }

    #[test]
    fn a_resumed_stream_skips_the_lines_written_before() {
        let at = |time_nanos, text: &str| {
            let line = text.to_owned();
            Ok::<_, Status>(LogItem {
                line,
                time_nanos,
                ..LogItem::default()
            })
        };
        let mut out = Vec::new();
        let mut position = Position::default();
        let first = stream::iter([at(1, "a"), at(2, "b"), at(2, "c"), {
            Err(Status::unavailable("the node is stopping"))
        }]);
        let outcome = relay(first, ("stdout", &mut out), &mut position)
            .now_or_never()
            .unwrap();
        assert!(outcome.is_err());
        assert_eq!((position.time_nanos, position.lines), (2, 2));
        let last = LogItem {
            unterminated: true,
            ..at(3, "e").unwrap()
        };
        let resumed = stream::iter([at(2, "b"), at(2, "c"), at(2, "d"), Ok(last)]);
        relay(resumed, ("stdout", &mut out), &mut position)
            .now_or_never()
            .unwrap()
            .unwrap();
        assert_eq!(out, b"a\nb\nc\nd\ne");
    }
}
