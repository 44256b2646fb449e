//! Events and logs, kept on disk.
//!
//! Two engines that know nothing of each other and nothing of gRPC: [`EventStore`] keeps ordered,
//! resumable events in segment files; [`LogWriter`] and [`LogStore`] write and read CRI-format
//! log files. Whatever writes is plain blocking code without a runtime, so that a tiny process
//! can use it; the asynchronous faces hand every file access to blocking threads.
//!
//! This crate must never block an asynchronous worker on a file, and never fail to start because
//! of what a crash left behind.

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
pub use logs::{LogChunk, LogError, LogLimits, LogQuery, LogStore, LogStream, LogWriter};
pub use time::Timestamp;
