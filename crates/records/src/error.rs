//! Errors of reading a record.

use std::io;
use std::path::{Path, PathBuf};

/// The reason a record cannot be used. Only [`RecordError::NotFound`] means that there is none.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The file does not exist.
    #[error("record {} not found", .path.display())]
    NotFound {
        /// The file.
        path: PathBuf,
    },
    /// The file exists but cannot be read.
    #[error("cannot read record {}", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the read.
        source: io::Error,
    },
    /// The file is no JSON, or lacks fields this format version requires.
    #[error("record {} is corrupt", .path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// The error of the parser, with line and column.
        source: serde_json::Error,
    },
    /// A newer build wrote the record in a format this build does not know.
    #[error(
        "record {} has format version {found}, this build reads up to {supported}; upgrade \
         mainstay or remove the record",
        .path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        found: u64,
        /// The newest version this build reads.
        supported: u64,
    },
}

impl RecordError {
    /// The file the error is about.
    pub fn path(&self) -> &Path {
        match self {
            Self::NotFound { path }
            | Self::Unreadable { path, .. }
            | Self::Corrupt { path, .. }
            | Self::Newer { path, .. } => path,
        }
    }

    /// True if the file does not exist.
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }
}
