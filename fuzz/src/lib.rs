//! Helpers of the targets: a directory for files, a runtime, and reference parsers that the real
//! ones are compared with.
//!
//! Nothing here may use the code under test to compute its expected result, except the parser of a
//! single log line, which has a target of its own.

mod plain_log;
mod plain_segment;
mod scratch;

pub use plain_log::{Line, last_lines, lines, window};
pub use plain_segment::{PlainEvent, every_record, header, records_in_order, seal};
pub use scratch::{Scratch, block_on};
