//! The writer of a log.
//!
//! Plain blocking code without a runtime. It only appends: bytes a reader may have read never
//! change. Within a file times never decrease, so that readers can search it.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Write};
use std::mem;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::directory::LogDirectory;
use super::error::LogError;
use super::file_end::FileEnd;
use super::free_space::{FreeSpace, SCARCE_LIMITS};
use super::limits::{LogLimits, LogRetention};
use crate::Timestamp;
use crate::cri::{Stream, write_line, write_unterminated};
use crate::io::as_u64;
use crate::lock::FileLock;

/// The size of buffered lines that triggers a write.
const BUFFER_BYTES: usize = 256 * 1024;
/// A clock step back by less than this is treated as a standstill.
const SMALL_STEP_NANOS: i64 = 1_000_000_000;

/// The one writer of a log; a second one is refused while this value lives.
#[derive(Debug)]
pub struct LogWriter {
    directory: LogDirectory,
    /// Held, never read.
    #[allow(dead_code)]
    lock: FileLock,
    root: PathBuf,
    /// True if a log that somebody deletes is created again.
    recreates: bool,
    limits: LogLimits,
    retention: Option<LogRetention>,
    free_space: FreeSpace,
    /// The newest generation, being written; there is none before the first line.
    file: Option<File>,
    generation: u64,
    file_bytes: u64,
    /// The older generations, oldest first.
    older: VecDeque<Older>,
    /// Files removed before the age that the retention asks for.
    removed_early: u64,
    /// The newest time in the current file.
    last_time: Option<Timestamp>,
    /// True if the current file may end inside a line or after a partial record.
    torn: bool,
    /// True if the link `current` does not point to the current file yet.
    link_stale: bool,
    buffer: Vec<u8>,
}

/// A generation that is no longer written.
#[derive(Debug)]
struct Older {
    generation: u64,
    bytes: u64,
    last_write: SystemTime,
}

impl LogWriter {
    /// Opens the log at its end. A line that the last writer left torn is ended, not truncated.
    pub fn open(root: &Path, source: &str, limits: LogLimits) -> Result<Self, LogError> {
        Self::open_retained(root, source, limits, None)
    }

    /// Opens the log as [`LogWriter::open`] does, unless there is none: creating it takes longer than
    /// its first line.
    pub fn open_existing(
        root: &Path,
        source: &str,
        limits: LogLimits,
    ) -> Result<Option<Self>, LogError> {
        match LogDirectory::open(root, source) {
            Ok(directory) => Self::continue_in(directory, root, limits, None).map(Some),
            Err(LogError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Opens the log as [`LogWriter::open`] does, with retention by time.
    pub fn open_retained(
        root: &Path,
        source: &str,
        limits: LogLimits,
        retention: Option<LogRetention>,
    ) -> Result<Self, LogError> {
        let directory = LogDirectory::open_or_create(root, source)?;
        Self::continue_in(directory, root, limits, retention)
    }

    fn continue_in(
        directory: LogDirectory,
        root: &Path,
        limits: LogLimits,
        retention: Option<LogRetention>,
    ) -> Result<Self, LogError> {
        let lock = directory.lock()?;
        let write_error = |source| LogError::Write {
            log: directory.name().to_owned(),
            source,
        };
        let mut generations = VecDeque::new();
        for generation in directory.generations().map_err(write_error)? {
            if let Some(file) = directory.open_generation(generation).map_err(write_error)? {
                let metadata = file.metadata().map_err(write_error)?;
                generations.push_back(Older {
                    generation,
                    bytes: metadata.len(),
                    last_write: metadata.modified().map_err(write_error)?,
                });
            }
        }
        let (generation, file_bytes, file) = match generations.pop_back() {
            Some(newest) => {
                let file = directory.append_to(newest.generation);
                let file = file.map_err(write_error)?;
                (newest.generation, newest.bytes, Some(file))
            }
            None => (0, 0, None),
        };
        let mut writer = Self {
            file,
            directory,
            lock,
            root: root.to_owned(),
            recreates: false,
            limits,
            retention,
            free_space: FreeSpace::default(),
            generation,
            file_bytes,
            older: generations,
            removed_early: 0,
            last_time: None,
            torn: true,
            link_stale: true,
            buffer: Vec::new(),
        };
        writer.last_time = writer.end()?.and_then(|end| end.last_time);
        // A full disk does not prevent opening: the next lines retry.
        let _ = writer.flush();
        writer.delete_oldest();
        Ok(writer)
    }

    /// Creates the log again when its file or its directory has been deleted, instead of writing to
    /// a file that nobody can open.
    pub fn recreate_deleted(mut self) -> Self {
        self.recreates = true;
        self
    }

    /// Keeps this share of the file system free, in percent; 0 for none. While there is less, only the
    /// newest lines are kept ([`SCARCE_LIMITS`]).
    pub fn keep_free(&mut self, percent: u8) {
        self.free_space.percent = percent;
    }

    /// Writes one line without its newline; text with newlines becomes several lines.
    pub fn append(&mut self, time: Timestamp, stream: Stream, line: &[u8]) -> Result<(), LogError> {
        self.push_line(time, stream, line)?;
        self.flush()
    }

    /// Buffers a line for the next [`LogWriter::flush`]; flushes when the buffer is full.
    pub fn push_line(
        &mut self,
        time: Timestamp,
        stream: Stream,
        line: &[u8],
    ) -> Result<(), LogError> {
        self.push(time, stream, line, false)
    }

    /// Buffers the beginning of a line whose end is not known yet; the next line of the same
    /// stream continues it.
    pub fn push_partial(
        &mut self,
        time: Timestamp,
        stream: Stream,
        text: &[u8],
    ) -> Result<(), LogError> {
        self.push(time, stream, text, true)
    }

    /// Buffers the last line of a stream that ended without a newline.
    pub fn push_unterminated(
        &mut self,
        time: Timestamp,
        stream: Stream,
        text: &[u8],
    ) -> Result<(), LogError> {
        let time = self.time_for_file(time)?;
        write_unterminated(&mut self.buffer, time, stream, text);
        self.last_time = Some(time);
        Ok(())
    }

    fn push(
        &mut self,
        time: Timestamp,
        stream: Stream,
        line: &[u8],
        unfinished: bool,
    ) -> Result<(), LogError> {
        let time = self.time_for_file(time)?;
        write_line(&mut self.buffer, time, stream, line, unfinished);
        self.last_time = Some(time);
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Writes the buffered lines, in one system call unless the kernel writes only a part. After an
    /// error they are dropped: a part of them may have been written, and a torn line is ended before
    /// the next lines.
    pub fn flush(&mut self) -> Result<(), LogError> {
        let mut lines = mem::take(&mut self.buffer);
        let written = self.write_out(&lines);
        lines.clear();
        self.buffer = lines;
        written
    }

    /// Flushes written lines to disk.
    pub fn sync(&mut self) -> Result<(), LogError> {
        self.flush()?;
        let synced = self.file.as_ref().map_or(Ok(()), File::sync_data);
        synced.map_err(|source| LogError::Sync {
            log: self.directory.name().to_owned(),
            source,
        })
    }

    /// Returns the time of the newest line, buffered ones included.
    pub fn last_time(&self) -> Option<Timestamp> {
        self.last_time
    }

    /// Changes the limits, at once.
    pub fn set_limits(&mut self, limits: LogLimits) {
        self.limits = limits;
        self.delete_oldest();
    }

    /// Changes the limits and the retention, at once.
    pub fn set_retention(&mut self, limits: LogLimits, retention: Option<LogRetention>) {
        self.retention = retention;
        self.set_limits(limits);
    }

    /// Returns the size of all files together.
    pub fn total_bytes(&self) -> u64 {
        let older: u64 = self.older.iter().map(|older| older.bytes).sum();
        older + self.file_bytes
    }

    /// Returns the number of files removed, since the last call, before the age that the retention
    /// asks for.
    pub fn take_removed_early(&mut self) -> u64 {
        mem::take(&mut self.removed_early)
    }

    fn write_out(&mut self, lines: &[u8]) -> Result<(), LogError> {
        if self.torn {
            if let Some(end) = self.end()? {
                self.write_bytes(&end.repair())?;
            }
            self.torn = false;
        }
        if !lines.is_empty() {
            if self.recreates && self.is_deleted() {
                self.recreate();
            }
            if let Some(file) = &self.file {
                self.free_space.wrote(file, as_u64(lines.len()));
            }
            let full = self.file_bytes + as_u64(lines.len()) > self.limits().file_bytes;
            if self.file.is_none() || full && self.file_bytes > 0 {
                self.start_generation()?;
            }
            self.write_bytes(lines)?;
            self.delete_oldest();
        }
        if self.link_stale && self.file_bytes > 0 {
            // The link is only for people: no line fails because of it.
            self.link_stale = self.directory.link_current(self.generation).is_err();
        }
        Ok(())
    }

    /// The limits in force: tighter ones while the file system has little space left.
    fn limits(&self) -> LogLimits {
        if !self.free_space.is_scarce {
            return self.limits;
        }
        LogLimits {
            file_bytes: self.limits.file_bytes.min(SCARCE_LIMITS.file_bytes),
            total_bytes: self.limits.total_bytes.min(SCARCE_LIMITS.total_bytes),
        }
    }

    fn is_deleted(&self) -> bool {
        match &self.file {
            Some(file) => file.metadata().is_ok_and(|metadata| metadata.nlink() == 0),
            None => self.directory.is_deleted(),
        }
    }

    /// Continues in a new file. Where that fails, the deleted one still takes the lines.
    fn recreate(&mut self) {
        if self.directory.is_deleted() {
            let directory = LogDirectory::open_or_create(&self.root, self.directory.name());
            let Ok(directory) = directory else { return };
            let Ok(lock) = directory.lock() else { return };
            self.directory = directory;
            self.lock = lock;
        }
        let present = self.directory.generations().unwrap_or_default();
        self.older
            .retain(|older| present.contains(&older.generation));
        // Another program may have left files of higher numbers.
        self.generation = self.generation.max(present.last().copied().unwrap_or(0));
        if self.start_generation().is_ok() {
            // It is not in the directory any more.
            self.older
                .retain(|older| present.contains(&older.generation));
        }
    }

    fn write_bytes(&mut self, mut bytes: &[u8]) -> Result<(), LogError> {
        while let (false, Some(file)) = (bytes.is_empty(), &mut self.file) {
            let written = match file.write(bytes) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(0),
                other => other,
            };
            match written {
                Ok(len) => {
                    self.file_bytes += as_u64(len);
                    bytes = &bytes[len..];
                }
                Err(source) => {
                    self.torn = true;
                    return Err(self.write_error(source));
                }
            }
        }
        Ok(())
    }

    /// Reads the end of the current file, if there is one.
    fn end(&self) -> Result<Option<FileEnd>, LogError> {
        let end = self
            .file
            .as_ref()
            .map(|file| FileEnd::read(file, self.file_bytes));
        end.transpose().map_err(|source| self.write_error(source))
    }

    /// Returns the time to write: never before the last one in the file.
    fn time_for_file(&mut self, time: Timestamp) -> Result<Timestamp, LogError> {
        let Some(last) = self.last_time.filter(|last| time < *last) else {
            return Ok(time);
        };
        if last.as_nanos().saturating_sub(time.as_nanos()) < SMALL_STEP_NANOS {
            return Ok(last);
        }
        self.flush()?;
        if self.file_bytes > 0 {
            self.start_generation()?;
        }
        self.last_time = None;
        Ok(time)
    }

    /// Starts a new file. The newest time stays: the buffered lines go into the new file.
    fn start_generation(&mut self) -> Result<(), LogError> {
        let next = self.generation + 1;
        let file = self
            .directory
            .create(next)
            .map_err(|source| LogError::Rotate {
                log: self.directory.name().to_owned(),
                source,
            })?;
        if self.file.replace(file).is_some() {
            self.older.push_back(Older {
                generation: self.generation,
                bytes: self.file_bytes,
                last_write: SystemTime::now(),
            });
        }
        self.generation = next;
        self.file_bytes = 0;
        self.link_stale = true;
        Ok(())
    }

    fn delete_oldest(&mut self) {
        let mut total = self.total_bytes();
        while self
            .older
            .front()
            .is_some_and(|oldest| self.is_due(oldest, total))
        {
            let Some(oldest) = self.older.pop_front() else {
                return;
            };
            if self.is_young(&oldest) {
                self.removed_early += 1;
            }
            // A file that cannot be deleted is found again when the log is next opened.
            let _ = self.directory.remove(oldest.generation);
            total -= oldest.bytes;
        }
    }

    fn is_due(&self, oldest: &Older, total: u64) -> bool {
        match self.retention {
            Some(retention) if total <= retention.max_bytes => {
                total > self.limits().total_bytes && !self.is_young(oldest)
            }
            Some(_) => true,
            None => total > self.limits().total_bytes,
        }
    }

    fn is_young(&self, older: &Older) -> bool {
        // A file of the future, after the clock was set back, is young.
        self.retention.is_some_and(|retention| {
            let age = older.last_write.elapsed().unwrap_or_default();
            age < retention.min_age
        })
    }

    fn write_error(&self, source: io::Error) -> LogError {
        LogError::Write {
            log: self.directory.name().to_owned(),
            source,
        }
    }
}

impl Drop for LogWriter {
    fn drop(&mut self) {
        // A caller that needs the result flushes before.
        let _ = self.flush();
    }
}
