//! The log of an executable, created with its first line.
//!
//! An executable that is silent needs no log, and one that starts does not wait for the file system:
//! of all that a start does on disk, a directory takes longest.

use std::path::{Path, PathBuf};

use mainstay_journal::{LogError, LogLimits, LogWriter, Stream, Timestamp};

/// The log that the output of an executable goes to.
#[derive(Debug)]
pub(super) struct OutputLog {
    root: PathBuf,
    name: String,
    limits: LogLimits,
    /// In percent.
    keep_free: u8,
    /// Missing until there is a line.
    writer: Option<LogWriter>,
}

impl OutputLog {
    /// Opens the log if there is one.
    pub(super) fn open(root: &Path, name: String, limits: LogLimits) -> Result<Self, LogError> {
        Ok(Self {
            writer: LogWriter::open_existing(root, &name, limits)?,
            root: root.to_owned(),
            name,
            limits,
            keep_free: 0,
        })
    }

    /// Creates the log if there is none.
    pub(super) fn create(&mut self) -> Result<(), LogError> {
        self.writer().map(drop)
    }

    /// As [`LogWriter::set_limits`].
    pub(super) fn set_limits(&mut self, limits: LogLimits) {
        self.limits = limits;
        if let Some(writer) = &mut self.writer {
            writer.set_limits(limits);
        }
    }

    /// As [`LogWriter::keep_free`].
    pub(super) fn keep_free(&mut self, percent: u8) {
        self.keep_free = percent;
        if let Some(writer) = &mut self.writer {
            writer.keep_free(percent);
        }
    }

    /// The time of the newest line.
    pub(super) fn last_time(&self) -> Option<Timestamp> {
        self.writer.as_ref().and_then(LogWriter::last_time)
    }

    /// As [`LogWriter::append`].
    pub(super) fn append(
        &mut self,
        time: Timestamp,
        stream: Stream,
        line: &[u8],
    ) -> Result<(), LogError> {
        self.writer()?.append(time, stream, line)
    }

    /// As [`LogWriter::push_line`].
    pub(super) fn push_line(
        &mut self,
        time: Timestamp,
        stream: Stream,
        line: &[u8],
    ) -> Result<(), LogError> {
        self.writer()?.push_line(time, stream, line)
    }

    /// As [`LogWriter::push_partial`].
    pub(super) fn push_partial(
        &mut self,
        time: Timestamp,
        stream: Stream,
        text: &[u8],
    ) -> Result<(), LogError> {
        self.writer()?.push_partial(time, stream, text)
    }

    /// As [`LogWriter::push_unterminated`].
    pub(super) fn push_unterminated(
        &mut self,
        time: Timestamp,
        stream: Stream,
        text: &[u8],
    ) -> Result<(), LogError> {
        self.writer()?.push_unterminated(time, stream, text)
    }

    /// As [`LogWriter::flush`].
    pub(super) fn flush(&mut self) -> Result<(), LogError> {
        self.writer.as_mut().map_or(Ok(()), LogWriter::flush)
    }

    fn writer(&mut self) -> Result<&mut LogWriter, LogError> {
        match &mut self.writer {
            Some(writer) => Ok(writer),
            missing => {
                let mut writer = LogWriter::open(&self.root, &self.name, self.limits)?;
                writer.keep_free(self.keep_free);
                Ok(missing.insert(writer))
            }
        }
    }
}
