//! Errors of logs.

use std::io;
use std::path::PathBuf;

use super::directory::MAX_NAME;

#[derive(Debug, thiserror::Error)]
pub enum LogError {
    #[error(
        "{name:?} is not a log name; a name begins with a-z or 0-9, goes on with those or . _ - and has at most {MAX_NAME} bytes"
    )]
    InvalidName { name: String },

    #[error("log {log:?} not found")]
    NotFound { log: String },

    #[error("log {log:?} is locked by another process that writes it; stop that process first")]
    Locked { log: String },

    #[error("cannot open {}", .path.display())]
    Open { path: PathBuf, source: io::Error },

    #[error("cannot list the logs in {}", .path.display())]
    List { path: PathBuf, source: io::Error },

    #[error("cannot read log {log:?}")]
    Read { log: String, source: io::Error },

    #[error("cannot write log {log:?}; lines written before are not affected")]
    Write { log: String, source: io::Error },

    #[error("cannot start a new file for log {log:?}; lines written before are not affected")]
    Rotate { log: String, source: io::Error },

    #[error("cannot flush log {log:?} to disk")]
    Sync { log: String, source: io::Error },

    #[error(
        "cannot watch log {log:?} for new lines; fs.inotify.max_user_watches or max_user_instances may be too low"
    )]
    Watch { log: String, source: io::Error },

    #[error("reading log {log:?} was interrupted because the process is shutting down")]
    Interrupted { log: String },
}
