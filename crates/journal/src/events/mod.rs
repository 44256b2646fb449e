//! Events: ordered, kept on disk, resumable.
//!
//! Events are appended to segment files and numbered without gaps. Memory holds only the newest
//! events and one small entry per segment; a subscriber is a cursor, so a slow one costs nothing.
//! No loss is silent: events that cannot be delivered are reported as [`Delivery::Missed`].
//!
//! A killed process loses nothing it published. Power loss may take events not yet flushed with
//! [`EventStore::sync`]; if their numbers are reused, the ids differ by time.

mod directory;
mod error;
mod event;
mod header;
mod history;
mod record;
mod retention;
mod ring;
mod segment;
mod store;
mod subscription;
mod writer;

pub use error::EventError;
pub use event::{Delivery, Event, EventId, InvalidEventId, StartAt};
pub use retention::EventRetention;
pub use store::EventStore;
pub use subscription::Subscription;
