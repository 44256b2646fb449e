//! Output of executables, from their pipes to their logs.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use mainstay_journal::{LogError, Stream, Timestamp};

use super::output_log::OutputLog;

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
    /// It is a terminal, which ends lines with a carriage return and a newline.
    terminal: bool,
    /// Its run has been followed by another, to which clients attach.
    earlier: bool,
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
            terminal: false,
            earlier: false,
        }
    }

    /// The master of a terminal, which must be non-blocking.
    pub(super) fn of_terminal(master: File) -> Self {
        Self {
            terminal: true,
            ..Self::new(master, Stream::Stdout)
        }
    }

    /// Returns whether it is the terminal of the latest run.
    pub(super) fn is_attachable(&self) -> bool {
        self.terminal && !self.earlier
    }

    /// Another run begins, while processes of this one have it open.
    pub(super) fn outlive_run(&mut self) {
        self.earlier = true;
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

    /// Reads once, into lines of the log that wait to be flushed. The second result says whether
    /// the log has taken them.
    pub(super) fn read(
        &mut self,
        buffer: &mut [u8],
        log: &mut OutputLog,
    ) -> (PipeRead, Result<(), LogError>) {
        if self.closed {
            return (PipeRead::Eof, Ok(()));
        }
        let got = match self.file.read(buffer) {
            Ok(0) => return (PipeRead::Eof, Ok(())),
            Ok(got) => got,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return (PipeRead::WouldBlock, Ok(()));
            }
            Err(_) => return (PipeRead::Eof, Ok(())),
        };
        let pushed = if self.terminal {
            self.push(&without_carriage_returns(&buffer[..got]), log)
        } else {
            self.push(&buffer[..got], log)
        };
        (PipeRead::Bytes(got), pushed)
    }

    fn push(&mut self, bytes: &[u8], log: &mut OutputLog) -> Result<(), LogError> {
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

    fn write_partial(&mut self, now: Timestamp, log: &mut OutputLog) -> Result<(), LogError> {
        if self.partial.len() <= MAX_PARTIAL_BYTES {
            return Ok(());
        }
        self.partly_written = true;
        let pushed = log.push_partial(now, self.stream, &self.partial);
        self.partial.clear();
        pushed
    }

    fn finish_line(&mut self, now: Timestamp, log: &mut OutputLog) -> Result<(), LogError> {
        if self.terminal && self.partial.last() == Some(&b'\r') {
            // Its newline came with the next read.
            self.partial.pop();
        }
        let pushed = log.push_line(now, self.stream, &self.partial);
        // Frees the memory of a long line: the cell may be idle from here on.
        self.partial = Vec::new();
        self.partly_written = false;
        pushed
    }

    /// Writes the last line, if it has no newline.
    pub(super) fn finish(&mut self, log: &mut OutputLog) -> Result<(), LogError> {
        if self.partial.is_empty() && !self.partly_written {
            return Ok(());
        }
        let pushed = log.push_unterminated(Timestamp::now(), self.stream, &self.partial);
        self.partial = Vec::new();
        self.partly_written = false;
        pushed
    }
}

/// Removes the carriage returns before newlines.
fn without_carriage_returns(bytes: &[u8]) -> Vec<u8> {
    let mut lines = Vec::with_capacity(bytes.len());
    for line in bytes.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => {
                lines.extend_from_slice(line);
                lines.push(b'\n');
            }
            None => lines.extend_from_slice(line),
        }
    }
    lines
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

/// Creates a pipe for the standard input of an executable: the read end, and a non-blocking write
/// end.
pub(super) fn input_pipe() -> io::Result<(File, File)> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    let (reader, writer) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    fcntl_setfl(&writer, fcntl_getfl(&writer)? | OFlags::NONBLOCK)?;
    Ok((reader.into(), writer.into()))
}
