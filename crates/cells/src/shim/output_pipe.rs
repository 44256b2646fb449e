//! Output of executables, from their pipes to their logs.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use mainstay_journal::{LogError, LogWriter, Stream, Timestamp};

/// A line without newline that grows beyond this is written in parts.
const MAX_PARTIAL_BYTES: usize = 16 * 1024;

/// The read end of a pipe that an executable and its children write to.
#[derive(Debug)]
pub(super) struct OutputPipe {
    file: File,
    closed: bool,
    stream: Stream,
    /// A line whose newline has not arrived.
    partial: Vec<u8>,
    /// A part of that line is in the log already.
    partly_written: bool,
}

/// The result of one read from a pipe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PipeRead {
    Bytes(usize),
    WouldBlock,
    /// All write ends are closed.
    Eof,
}

impl OutputPipe {
    /// `file` must be non-blocking.
    pub(super) fn new(file: File, stream: Stream) -> Self {
        Self {
            file,
            closed: false,
            stream,
            partial: Vec::new(),
            partly_written: false,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Reads once, into lines of the log that wait to be flushed.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        log: &mut LogWriter,
    ) -> Result<PipeRead, LogError> {
        if self.closed {
            return Ok(PipeRead::Eof);
        }
        let got = match self.file.read(buffer) {
            Ok(0) => return Ok(PipeRead::Eof),
            Ok(got) => got,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(PipeRead::WouldBlock);
            }
            Err(_) => return Ok(PipeRead::Eof),
        };
        self.push(&buffer[..got], log)?;
        Ok(PipeRead::Bytes(got))
    }

    fn push(&mut self, bytes: &[u8], log: &mut LogWriter) -> Result<(), LogError> {
        let now = Timestamp::now();
        let mut rest = bytes;
        if !self.partial.is_empty() || self.partly_written {
            match memchr::memchr(b'\n', rest) {
                Some(end) => {
                    self.partial.extend_from_slice(&rest[..end]);
                    rest = &rest[end + 1..];
                    self.finish_line(now, log)?;
                }
                None => {
                    self.partial.extend_from_slice(rest);
                    return self.write_partial(now, log);
                }
            }
        }
        if let Some(last) = memchr::memrchr(b'\n', rest) {
            let lines = &rest[..last];
            rest = &rest[last + 1..];
            log.push_line(now, self.stream, lines)?;
        }
        self.partial.extend_from_slice(rest);
        self.write_partial(now, log)
    }

    fn write_partial(&mut self, now: Timestamp, log: &mut LogWriter) -> Result<(), LogError> {
        if self.partial.len() <= MAX_PARTIAL_BYTES {
            return Ok(());
        }
        self.partly_written = true;
        let pushed = log.push_partial(now, self.stream, &self.partial);
        self.partial.clear();
        pushed
    }

    fn finish_line(&mut self, now: Timestamp, log: &mut LogWriter) -> Result<(), LogError> {
        let pushed = log.push_line(now, self.stream, &self.partial);
        // Frees the memory of a long line: the cell may be idle from here on.
        self.partial = Vec::new();
        self.partly_written = false;
        pushed
    }

    /// Writes the last line, if it has no newline.
    pub(super) fn finish(&mut self, log: &mut LogWriter) -> Result<(), LogError> {
        if self.partial.is_empty() && !self.partly_written {
            return Ok(());
        }
        self.finish_line(Timestamp::now(), log)
    }
}

/// Creates a pipe for the output of an executable: a non-blocking read end, and the write end.
pub(super) fn pipe() -> io::Result<(File, File)> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
    /// Large enough that a writer seldom blocks.
    const PIPE_BYTES: usize = 1 << 20;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
    // Only for throughput: the default size works.
    let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader.into(), writer.into()))
}
