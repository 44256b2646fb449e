//! Events and logs on disk.
//!
//! Two engines that know neither each other nor gRPC: [`EventStore`] keeps ordered, resumable
//! events in segment files; [`LogWriter`] and [`LogStore`] write and read CRI-format log files.
//! Writers are plain blocking code without a runtime, so that the shim can use them; the async API
//! hands every file access to blocking threads.
//!
//! This crate must never block an async worker on a file, and never fail to open because of what a
//! crash left behind.

pub mod cri;
mod events;
mod io;
mod lock;
mod logs;
mod time;

pub use cri::{Record, Stream};
pub use events::{
    Delivery, Event, EventError, EventId, EventRetention, EventStore, InvalidEventId, StartAt,
    Subscription,
};
pub use logs::{
    LogChunk, LogError, LogLimits, LogQuery, LogRetention, LogStore, LogStream, LogWriter,
};
pub use time::Timestamp;
