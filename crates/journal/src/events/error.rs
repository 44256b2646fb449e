//! What can go wrong with events.

use std::io;
use std::path::PathBuf;

use super::event::EventId;
use super::record::{MAX_KIND, MAX_PAYLOAD};

#[derive(Debug, thiserror::Error)]
pub enum EventError {
    #[error("cannot open the event store in {}; the directory must exist or be creatable, and be writable", .path.display())]
    Open { path: PathBuf, source: io::Error },

    #[error("the event store in {} is in use by another process; stop that one first", .path.display())]
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

    #[error("cannot write an event to {}; nothing published before is affected", .path.display())]
    Write { path: PathBuf, source: io::Error },

    #[error("cannot flush events in {} to disk", .path.display())]
    Sync { path: PathBuf, source: io::Error },

    #[error("cannot read events from {}", .path.display())]
    Read { path: PathBuf, source: io::Error },

    #[error("an event kind of {len} bytes is too long; at most {MAX_KIND} are allowed")]
    KindTooLong { len: usize },

    #[error("an event payload of {len} bytes is too large; at most {MAX_PAYLOAD} are allowed")]
    PayloadTooLarge { len: usize },

    #[error("event {id} is not of this event store; subscribe from the kept events instead")]
    UnknownId { id: EventId },

    #[error("reading events was interrupted because the process is shutting down")]
    Interrupted,
}
