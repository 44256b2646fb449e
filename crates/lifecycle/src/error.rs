//! Reasons why a sequence is not started.

use std::io;
use std::path::PathBuf;

use crate::ActorId;

/// The record of sequences cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot create the directory of sequence records {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
}

#[derive(Debug, thiserror::Error)]
pub enum StartError {
    #[error(
        "sequence {sequence} of actor {actor} is running, requested by {requested_by}; wait until \
         it ends, or force a reboot or a shutdown"
    )]
    Busy {
        sequence: String,
        actor: ActorId,
        requested_by: String,
    },
    /// Nothing has been done.
    #[error("cannot record sequence {sequence}")]
    NotRecorded { sequence: String, source: io::Error },
    #[error("the node is stopping")]
    Stopping,
}
