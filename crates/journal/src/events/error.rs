//! Errors of the event store.

use std::io;
use std::path::PathBuf;

use super::event::EventId;
use super::record::{MAX_KIND, MAX_PAYLOAD};

/// The reason an operation on events failed.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("cannot open the event store in {}; make sure that the directory is writable", .path.display())]
    Open { path: PathBuf, source: io::Error },

    #[error("the event store in {} is locked by another process; stop that process first", .path.display())]
    Locked { path: PathBuf },

    #[error(
        "event segment {} has format version {found}, this build reads up to {supported}; \
         upgrade mainstay or remove the segment",
        .path.display()
    )]
    Newer {
        path: PathBuf,
        found: u32,
        supported: u32,
    },

    #[error("cannot write an event to {}; events published before are not affected", .path.display())]
    Write { path: PathBuf, source: io::Error },

    #[error("cannot flush events in {} to disk", .path.display())]
    Sync { path: PathBuf, source: io::Error },

    #[error("cannot read events from {}", .path.display())]
    Read { path: PathBuf, source: io::Error },

    #[error("event kind of {len} bytes is too long; the maximum is {MAX_KIND}")]
    KindTooLong { len: usize },

    #[error("event payload of {len} bytes is too large; the maximum is {MAX_PAYLOAD}")]
    PayloadTooLarge { len: usize },

    #[error(
        "event {id} is unknown to this event store; subscribe from the oldest kept event instead"
    )]
    UnknownId { id: EventId },

    #[error("reading events was interrupted because the process is shutting down")]
    Interrupted,
}
