//! The encoding of an event in a segment file.
//!
//! ```text
//! marker 4 | body length 4 | checksum 4 | seq 8 | time 8 | kind length 2 | kind | payload
//! ```
//! Numbers are little-endian; the checksum is CRC-32 (IEEE). It also covers the location of the
//! record (segment and offset), so that a record inside the payload of another is never mistaken
//! for one when reading resumes after corruption. Decoding accepts any bytes and never panics.

use bytes::Bytes;
use crc32fast::Hasher;

use super::event::{Event, EventId};
use crate::Timestamp;

pub(super) const MAX_KIND: usize = 256;
pub(super) const MAX_PAYLOAD: usize = 64 * 1024;

pub(super) const MARKER: [u8; 4] = *b"\xE7evt";
const PREFIX: usize = 12;
const BODY_FIXED: usize = 18;
pub(super) const MIN_RECORD: usize = PREFIX + BODY_FIXED;
pub(super) const MAX_RECORD: usize = MIN_RECORD + MAX_KIND + MAX_PAYLOAD;

/// The location of a record; part of its checksum.
#[derive(Clone, Copy, Debug)]
pub(super) struct Location {
    pub(super) segment: u64,
    pub(super) offset: u64,
}

#[derive(Debug)]
pub(super) enum Decoded {
    /// A record and its length.
    Whole(Event, usize),
    /// The bytes end before the record does.
    Torn,
    /// Not a record. `claimed` is its length if it has a valid prefix.
    Corrupt { claimed: Option<usize> },
}

/// Appends a record. The caller has checked the sizes.
pub(super) fn encode(
    out: &mut Vec<u8>,
    location: Location,
    id: EventId,
    kind: &str,
    payload: &[u8],
) {
    let start = out.len();
    out.extend_from_slice(&MARKER);
    let body_len = u32::try_from(BODY_FIXED + kind.len() + payload.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&body_len.to_le_bytes());
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&id.seq.to_le_bytes());
    out.extend_from_slice(&id.time.as_nanos().to_le_bytes());
    let kind_len = u16::try_from(kind.len()).unwrap_or(u16::MAX);
    out.extend_from_slice(&kind_len.to_le_bytes());
    out.extend_from_slice(kind.as_bytes());
    out.extend_from_slice(payload);
    let sum = checksum(location, body_len, &out[start + PREFIX..]);
    out[start + 8..start + PREFIX].copy_from_slice(&sum.to_le_bytes());
}

pub(super) fn decode(bytes: &[u8], location: Location) -> Decoded {
    let Some((prefix, rest)) = bytes.split_first_chunk::<PREFIX>() else {
        let looks_right = bytes
            .iter()
            .zip(&MARKER)
            .all(|(byte, expected)| byte == expected);
        return if looks_right {
            Decoded::Torn
        } else {
            Decoded::Corrupt { claimed: None }
        };
    };
    let [m0, m1, m2, m3, l0, l1, l2, l3, c0, c1, c2, c3] = *prefix;
    let body_len = u32::from_le_bytes([l0, l1, l2, l3]);
    let len = PREFIX + usize::try_from(body_len).unwrap_or(usize::MAX - PREFIX);
    if [m0, m1, m2, m3] != MARKER || !(MIN_RECORD..=MAX_RECORD).contains(&len) {
        return Decoded::Corrupt { claimed: None };
    }
    let Some(body) = rest.get(..len - PREFIX) else {
        return Decoded::Torn;
    };
    if checksum(location, body_len, body) != u32::from_le_bytes([c0, c1, c2, c3]) {
        return Decoded::Corrupt { claimed: Some(len) };
    }
    match decode_body(body) {
        Some(event) => Decoded::Whole(event, len),
        None => Decoded::Corrupt { claimed: Some(len) },
    }
}

fn decode_body(body: &[u8]) -> Option<Event> {
    let (seq, rest) = body.split_first_chunk::<8>()?;
    let (time, rest) = rest.split_first_chunk::<8>()?;
    let (kind_len, rest) = rest.split_first_chunk::<2>()?;
    let (kind, payload) = rest.split_at_checked(usize::from(u16::from_le_bytes(*kind_len)))?;
    Some(Event {
        id: EventId {
            seq: u64::from_le_bytes(*seq),
            time: Timestamp::from_nanos(i64::from_le_bytes(*time)),
        },
        kind: std::str::from_utf8(kind).ok()?.into(),
        payload: Bytes::copy_from_slice(payload),
    })
}

fn checksum(location: Location, body_len: u32, body: &[u8]) -> u32 {
    let mut hasher = Hasher::new();
    hasher.update(&location.segment.to_le_bytes());
    hasher.update(&location.offset.to_le_bytes());
    hasher.update(&body_len.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}
