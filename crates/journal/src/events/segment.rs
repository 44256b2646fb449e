//! Iteration over the records of a segment, skipping corruption.
//!
//! Works on bytes in memory only. It must never yield a record that was not written at exactly
//! that offset, nor yield records out of order.

use super::event::Event;
use super::header;
use super::record::{Decoded, Location, MARKER, MIN_RECORD, decode};
use crate::io::as_u64;

/// Numbers from here on count as corruption, so that counting never overflows.
pub(super) const MAX_SEQ: u64 = 1 << 62;

/// The records in a part of a segment, in order.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    bytes: &'a [u8],
    /// The offset of `bytes` in the file.
    base: u64,
    segment: u64,
    /// Index in `bytes` of the next record.
    at: usize,
    /// Index just after the last whole record.
    good_end: usize,
    /// Records below this number are skipped: they would be out of order.
    floor: u64,
    /// True if more of the file may follow `bytes`.
    more_follows: bool,
}

impl<'a> Walk<'a> {
    pub(super) fn new(segment: u64, base: u64, bytes: &'a [u8], more_follows: bool) -> Self {
        let header = if base == 0 {
            header::decode(bytes, segment)
        } else {
            None
        };
        let begin = header.map_or(0, |header| header.len);
        Self {
            bytes,
            base,
            segment,
            at: begin,
            good_end: begin,
            floor: segment,
            more_follows,
        }
    }

    /// Returns the offset just after the last record yielded.
    pub(super) fn good_end(&self) -> u64 {
        self.base + as_u64(self.good_end)
    }

    /// Returns the offset at which to continue with more bytes.
    pub(super) fn resume_at(&self) -> u64 {
        self.base + as_u64(self.at)
    }

    fn decode_here(&self) -> Decoded {
        let location = Location {
            segment: self.segment,
            offset: self.base + as_u64(self.at),
        };
        decode(&self.bytes[self.at..], location)
    }

    /// Advances to the next marker.
    fn skip_corruption(&mut self) {
        let from = self.at + 1;
        let rest = &self.bytes[from.min(self.bytes.len())..];
        let found = rest
            .windows(MARKER.len())
            .position(|window| window == MARKER);
        self.at = match found {
            Some(offset) => from + offset,
            // The bytes may end with the beginning of a marker.
            None if self.more_follows => {
                self.bytes.len().saturating_sub(MARKER.len() - 1).max(from)
            }
            None => self.bytes.len(),
        }
        .min(self.bytes.len());
    }

    /// Returns the number of events after the last whole record that readers may have seen.
    ///
    /// A torn record was never delivered. One of full length with a wrong checksum may have been,
    /// and unrecognisable bytes may have been as many records as fit.
    pub(super) fn maybe_seen_after_end(&self) -> u64 {
        let mut rest = &self.bytes[self.good_end..];
        let mut count = 0;
        loop {
            let location = Location {
                segment: self.segment,
                offset: u64::MAX,
            };
            match decode(rest, location) {
                Decoded::Torn => return count,
                Decoded::Whole(_, len) | Decoded::Corrupt { claimed: Some(len) } => {
                    count += 1;
                    rest = &rest[len..];
                }
                Decoded::Corrupt { claimed: None } => {
                    return count + as_u64(rest.len() / MIN_RECORD);
                }
            }
        }
    }
}

impl Iterator for Walk<'_> {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        while self.at < self.bytes.len() {
            match self.decode_here() {
                // A valid record with an impossible number is skipped as a whole.
                Decoded::Whole(event, len) if !(self.floor..MAX_SEQ).contains(&event.id.seq) => {
                    self.at += len;
                }
                Decoded::Whole(event, len) => {
                    self.at += len;
                    self.good_end = self.at;
                    self.floor = event.id.seq.saturating_add(1);
                    return Some(event);
                }
                Decoded::Torn if self.more_follows => return None,
                // A corrupt length also looks like a torn record: whole ones may follow.
                Decoded::Torn | Decoded::Corrupt { .. } => self.skip_corruption(),
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::EventId;
    use super::super::record::encode;
    use super::*;
    use crate::Timestamp;

    fn append(bytes: &mut Vec<u8>, seq: u64, payload: &[u8]) {
        let location = Location {
            segment: 1,
            offset: as_u64(bytes.len()),
        };
        let time = Timestamp::from_nanos(7);
        encode(bytes, location, EventId { seq, time }, "kind", payload);
    }

    #[test]
    fn records_after_one_with_an_impossible_number_are_read() {
        let mut bytes = Vec::new();
        for seq in [1, MAX_SEQ, u64::MAX, 2, 1, 3] {
            append(&mut bytes, seq, b"payload");
        }
        let mut walk = Walk::new(1, 0, &bytes, false);
        let seen: Vec<u64> = walk.by_ref().map(|event| event.id.seq).collect();
        assert_eq!(seen, [1, 2, 3]);
        assert_eq!(walk.good_end(), as_u64(bytes.len()));
    }

    #[test]
    fn a_skipped_record_is_not_searched_for_others() {
        let mut bytes = Vec::new();
        append(&mut bytes, 5, b"");
        // Valid for the location it gets inside the payload of the other.
        let location = Location {
            segment: 1,
            offset: as_u64(bytes.len() + MIN_RECORD + "kind".len()),
        };
        let id = EventId {
            seq: 9,
            time: Timestamp::from_nanos(7),
        };
        let mut inner = Vec::new();
        encode(&mut inner, location, id, "kind", b"");
        append(&mut bytes, 4, &inner);
        let walk = Walk::new(1, 0, &bytes, false);
        assert_eq!(walk.map(|event| event.id.seq).collect::<Vec<_>>(), [5]);
    }
}
