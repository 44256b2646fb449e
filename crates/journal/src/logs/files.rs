//! The files of a log, own or foreign: numbered by generation, the newest last.

use std::fs::File;
use std::io;

use super::directory::LogDirectory;
use super::foreign::ForeignLog;

#[derive(Debug)]
pub(super) enum Files {
    /// Written by [`LogWriter`](super::LogWriter): never renamed, deleted only when old.
    Own(LogDirectory),
    /// Written by another program.
    Foreign(ForeignLog),
}

impl Files {
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Own(directory) => directory.name(),
            Self::Foreign(log) => log.name(),
        }
    }

    /// Returns all generations, oldest first.
    pub(super) fn generations(&mut self) -> io::Result<Vec<u64>> {
        match self {
            Self::Own(directory) => directory.generations(),
            Self::Foreign(log) => log.generations(),
        }
    }

    /// Opens a generation for reading; `None` if there is no such file.
    pub(super) fn open_generation(&mut self, generation: u64) -> io::Result<Option<File>> {
        match self {
            Self::Own(directory) => directory.open_generation(generation),
            Self::Foreign(log) => log.open_generation(generation),
        }
    }

    /// True if files may be truncated, which restarts them, or deleted without a successor.
    pub(super) fn may_be_cut(&self) -> bool {
        matches!(self, Self::Foreign(_))
    }
}
