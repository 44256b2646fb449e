//! What can go wrong with the client configuration, each with what to do about it.

use std::io;
use std::path::PathBuf;

use crate::secret_file::SecretFileError;

/// Why the client configuration could not be read, written or used.
#[derive(Debug, thiserror::Error)]
pub enum ClientConfigError {
    /// The file cannot be read, or others can read it.
    #[error(transparent)]
    File(#[from] SecretFileError),
    /// The file is not what it should be.
    #[error("{}, line {line}: {problem}", .path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// Where, counted from 1.
        line: u64,
        /// What is wrong there.
        problem: String,
    },
    /// The file cannot be written.
    #[error("cannot write {}; check free space and the directory's permissions", .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The contents cannot be put into YAML.
    #[error("cannot put the configuration into YAML")]
    Encode(#[from] serde_saphyr::SerializeError),
    /// There is no context of that name.
    #[error("no context {name:?}; {}", there_are(.known))]
    UnknownContext {
        /// The name asked for.
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
    /// Whether the file's mode or owner is what stands in the way, so that the file must not be
    /// taken for missing or worthless.
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
