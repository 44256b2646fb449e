//! Errors of the client configuration, each with its remedy.

use std::io;
use std::path::PathBuf;

use crate::secret_file::SecretFileError;

/// The reason the client configuration cannot be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The file is malformed.
    #[error("{}, line {line}: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// The line, counted from 1.
        line: u64,
        /// The problem.
        problem: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}; check free space and the directory's permissions", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
    /// The configuration cannot be encoded as YAML.
    #[error("cannot encode the configuration as YAML")]
    Encode(#[from] serde_saphyr::SerializeError),
    /// There is no context of that name.
    #[error("no context {name:?}; {}", there_are(.known))]
    UnknownContext {
        /// The requested name.
        name: String,
        /// The contexts there are.
        known: Vec<String>,
    },
    /// No context was named and none is in use.
    #[error("no context is chosen; {}", there_are(.known))]
    NoneChosen {
        /// The contexts there are.
        known: Vec<String>,
    },
}

impl ClientConfigError {
    /// True if the mode or owner of the file prevents its use, so that it must not be treated as
    /// missing or corrupt.
    pub fn is_permission_problem(&self) -> bool {
        match self {
            Self::File(SecretFileError::OpenToOthers { .. }) => true,
            Self::File(SecretFileError::Unreadable { source, .. }) => {
                source.kind() == io::ErrorKind::PermissionDenied
            }
            _ => false,
        }
    }
}

fn there_are(known: &[String]) -> String {
    match known {
        [] => "the configuration has none, merge one into it first".to_owned(),
        known => format!("the configuration has {}", known.join(", ")),
    }
}
