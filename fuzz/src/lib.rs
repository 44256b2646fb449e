//! What several targets need: a place for files, a runtime, and the plain reading of formats
//! that the real readers are held against.
//!
//! Nothing here may use the code under test to say what that code should give, except for the
//! reading of a single log line, which has a target of its own.

mod plain_log;
mod plain_segment;
mod scratch;

pub use plain_log::{Line, last_lines, lines, window};
pub use plain_segment::{PlainEvent, every_record, records_in_order, seal};
pub use scratch::{Scratch, block_on};
