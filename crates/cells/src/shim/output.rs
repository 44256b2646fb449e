//! What executables write, on its way to their logs.

use std::fs::File;
use std::io::{self, ErrorKind, Read};

use mainstay_journal::{LogError, LogWriter, Stream, Timestamp};

/// An unfinished line that grows beyond this is written in parts.
const MOST_UNFINISHED: usize = 16 * 1024;

/// One end of a pipe whose other end an executable, or whoever it started, writes to.
#[derive(Debug)]
pub(super) struct Pipe {
    file: File,
    closed: bool,
    stream: Stream,
    /// The beginning of a line whose end has not come.
    unfinished: Vec<u8>,
    /// A part of that line has been written already.
    partly_written: bool,
}

/// What a read found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    Some(usize),
    /// Nothing now.
    Nothing,
    /// Nothing any more: all writers are gone.
    End,
}

impl Pipe {
    /// `file` must not block.
    pub(super) fn new(file: File, stream: Stream) -> Self {
        Self {
            file,
            closed: false,
            stream,
            unfinished: Vec::new(),
            partly_written: false,
        }
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Nothing will come any more.
    pub(super) fn close(&mut self) {
        self.closed = true;
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Takes what is there, once, into lines of the log that wait to be flushed.
    pub(super) fn pump(
        &mut self,
        buffer: &mut [u8],
        log: &mut LogWriter,
    ) -> Result<Found, LogError> {
        if self.closed {
            return Ok(Found::End);
        }
        let got = match self.file.read(buffer) {
            Ok(0) => return Ok(Found::End),
            Ok(got) => got,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) =>
            {
                return Ok(Found::Nothing);
            }
            Err(_) => return Ok(Found::End),
        };
        self.take(&buffer[..got], log)?;
        Ok(Found::Some(got))
    }

    fn take(&mut self, bytes: &[u8], log: &mut LogWriter) -> Result<(), LogError> {
        let now = Timestamp::now();
        let mut rest = bytes;
        if !self.unfinished.is_empty() || self.partly_written {
            match memchr::memchr(b'\n', rest) {
                Some(end) => {
                    self.unfinished.extend_from_slice(&rest[..end]);
                    rest = &rest[end + 1..];
                    self.finish_line(now, log)?;
                }
                None => {
                    self.unfinished.extend_from_slice(rest);
                    return self.write_long(now, log);
                }
            }
        }
        if let Some(last) = memchr::memrchr(b'\n', rest) {
            let lines = &rest[..last];
            rest = &rest[last + 1..];
            log.push_line(now, self.stream, lines)?;
        }
        self.unfinished.extend_from_slice(rest);
        self.write_long(now, log)
    }

    fn write_long(&mut self, now: Timestamp, log: &mut LogWriter) -> Result<(), LogError> {
        if self.unfinished.len() <= MOST_UNFINISHED {
            return Ok(());
        }
        self.partly_written = true;
        let pushed = log.push_partial(now, self.stream, &self.unfinished);
        self.unfinished.clear();
        pushed
    }

    fn finish_line(&mut self, now: Timestamp, log: &mut LogWriter) -> Result<(), LogError> {
        let pushed = log.push_line(now, self.stream, &self.unfinished);
        // An idle cell keeps nothing of a long line.
        self.unfinished = Vec::new();
        self.partly_written = false;
        pushed
    }

    /// The last line, also if it has no end.
    pub(super) fn finish(&mut self, log: &mut LogWriter) -> Result<(), LogError> {
        if self.unfinished.is_empty() && !self.partly_written {
            return Ok(());
        }
        self.finish_line(Timestamp::now(), log)
    }
}

/// A pipe for the output of an executable: what we read, and what it writes.
pub(super) fn pipe() -> io::Result<(File, File)> {
    use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
    use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
    /// Enough that a writer seldom waits for us.
    const PIPE_BYTES: usize = 1 << 20;
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC)?;
    fcntl_setfl(&reader, fcntl_getfl(&reader)? | OFlags::NONBLOCK)?;
    // Only for speed: a smaller one is fine.
    let _ = fcntl_setpipe_size(&writer, PIPE_BYTES);
    Ok((reader.into(), writer.into()))
}
