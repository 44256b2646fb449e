//! Events: ordered, kept on disk, resumable.
//!
//! Events are appended to segment files and numbered without gaps. Memory holds only the newest
//! of them and one small entry a segment; a subscriber is a cursor, so a slow one costs nothing.
//! Nothing is ever lost silently: what a subscriber could not be given is reported as
//! [`Delivery::Missed`].
//!
//! A killed process loses nothing it published. A power cut may take what was not yet flushed
//! with [`EventStore::sync`]; should a number be used again after that, the time in the id tells
//! the two events apart.

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
