//! Forwards output lines of the program to stdout or stderr.

use futures_util::{Stream, StreamExt};
use mainstay_api::observe::LogItem;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tonic::Status;

use crate::failure::Outcome;

/// Received lines written at once.
const MAX_BATCH_LINES: usize = 256;

/// Writes the stream to its end: each line unchanged, followed by a newline.
pub(super) async fn relay(
    lines: impl Stream<Item = Result<LogItem, Status>> + Unpin,
    mut out: impl AsyncWrite + Unpin,
) -> Outcome {
    let mut lines = lines.ready_chunks(MAX_BATCH_LINES);
    while let Some(chunk) = lines.next().await {
        let mut text = Vec::new();
        let mut failed = None;
        for item in chunk {
            match item {
                Ok(item) => {
                    let line = match &*item.raw {
                        b"" => item.line.as_bytes(),
                        raw => raw,
                    };
                    text.extend_from_slice(line);
                    text.push(b'\n');
                }
                Err(status) => failed = Some(status),
            }
        }
        out.write_all(&text).await?;
        out.flush().await?;
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
        let outcome = relay(lines, &mut out).now_or_never().unwrap();
        assert_eq!(outcome.unwrap_err().exit, Exit::Unreachable);
        assert_eq!(out, b"a\n\n\x1b[1mb\n");
    }
}
