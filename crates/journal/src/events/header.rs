//! The header of a segment file: the version of its format.
//!
//! The header is the first record of a file, in the same encoding as events, with the sequence
//! number 0 and the kind `mainstay.segment`. Its payload begins with the version (4 bytes,
//! little-endian); further bytes are ignored. No event has the number 0, so builds from before
//! headers skip it. A file without a header has version 1. The files of every later version begin
//! with such a record too.

use super::event::{Event, EventId};
use super::record::{self, Decoded, Location};
use crate::Timestamp;

/// The newest version this build reads, and the one it writes.
pub(super) const FORMAT_VERSION: u32 = 1;

const SEQ: u64 = 0;
const KIND: &str = "mainstay.segment";

/// A header as found in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) version: u32,
    /// The bytes it takes up in the file.
    pub(super) len: usize,
}

/// Appends the header of `segment`, which must stand at the beginning of the file.
pub(super) fn encode(out: &mut Vec<u8>, segment: u64, created: Timestamp) {
    let id = EventId {
        seq: SEQ,
        time: created,
    };
    let version = FORMAT_VERSION.to_le_bytes();
    record::encode(out, beginning(segment), id, KIND, &version);
}

/// Decodes the header at the beginning of a segment file; `None` if there is none or it is
/// corrupt.
pub(super) fn decode(bytes: &[u8], segment: u64) -> Option<Header> {
    match record::decode(bytes, beginning(segment)) {
        Decoded::Whole(event, len) => version(&event).map(|version| Header { version, len }),
        Decoded::Torn | Decoded::Corrupt { .. } => None,
    }
}

fn version(event: &Event) -> Option<u32> {
    let is_header = event.id.seq == SEQ && &*event.kind == KIND;
    let version = event.payload.first_chunk().filter(|_| is_header)?;
    Some(u32::from_le_bytes(*version))
}

fn beginning(segment: u64) -> Location {
    Location { segment, offset: 0 }
}
