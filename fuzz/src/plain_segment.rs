//! Reference reader of event segments, written from the description of their format.
//!
//! A segment may begin with a header: a record with the sequence number 0, the kind
//! `mainstay.segment`, and a payload that begins with the format version (4 bytes).
//!
//! ```text
//! marker 4 | body length 4 | checksum 4 | seq 8 | time 8 | kind length 2 | kind | payload
//! ```

const MARKER: &[u8; 4] = b"\xE7evt";
const PREFIX: usize = 12;
const BODY_LEN: std::ops::RangeInclusive<usize> = 18..=18 + 256 + 64 * 1024;

/// The fields of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainEvent {
    pub seq: u64,
    pub nanos: i64,
    pub kind: String,
    pub payload: Vec<u8>,
}

/// Computes the checksum of everything that looks like a record with checksum 0. Without it, every
/// mutation of a record would only be found to be corrupt.
pub fn seal(bytes: &mut [u8], segment: u64) {
    // Backwards, because a record's checksum covers those of the records in its payload.
    for offset in (0..bytes.len()).rev() {
        if let Some(body) = body_at(bytes, offset)
            && bytes[offset + 8..offset + PREFIX] == [0; 4]
        {
            let sum = checksum(segment, offset, body);
            bytes[offset + 8..offset + PREFIX].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Returns every whole record, at any offset.
pub fn every_record(bytes: &[u8], segment: u64) -> Vec<PlainEvent> {
    (0..bytes.len())
        .filter_map(|offset| record_at(bytes, segment, offset))
        .map(|(event, _)| event)
        .collect()
}

/// Returns the format version in the header of a segment, and the length of the header.
pub fn header(bytes: &[u8], segment: u64) -> Option<(u32, usize)> {
    let (record, len) = record_at(bytes, segment, 0)?;
    let version = record.payload.first_chunk()?;
    let is_header = record.seq == 0 && record.kind == "mainstay.segment";
    is_header.then_some((u32::from_le_bytes(*version), len))
}

/// Returns the records of a segment that is nothing but an optional header and records in ascending
/// order; `None` for any other.
pub fn records_in_order(bytes: &[u8], segment: u64) -> Option<Vec<PlainEvent>> {
    let mut events: Vec<PlainEvent> = Vec::new();
    let mut offset = header(bytes, segment).map_or(0, |(_, len)| len);
    while offset < bytes.len() {
        let (event, len) = record_at(bytes, segment, offset)?;
        let least = events
            .last()
            .map_or(segment, |last| last.seq.saturating_add(1));
        if event.seq < least {
            return None;
        }
        events.push(event);
        offset += len;
    }
    Some(events)
}

fn record_at(bytes: &[u8], segment: u64, offset: usize) -> Option<(PlainEvent, usize)> {
    let body = body_at(bytes, offset)?;
    let sum = bytes.get(offset + 8..)?.first_chunk()?;
    if u32::from_le_bytes(*sum) != checksum(segment, offset, body) {
        return None;
    }
    let (seq, rest) = body.split_first_chunk()?;
    let (nanos, rest) = rest.split_first_chunk()?;
    let (kind_len, rest) = rest.split_first_chunk()?;
    let (kind, payload) = rest.split_at_checked(u16::from_le_bytes(*kind_len).into())?;
    let event = PlainEvent {
        seq: u64::from_le_bytes(*seq),
        nanos: i64::from_le_bytes(*nanos),
        kind: String::from_utf8(kind.to_vec()).ok()?,
        payload: payload.to_vec(),
    };
    Some((event, PREFIX + body.len()))
}

fn body_at(bytes: &[u8], offset: usize) -> Option<&[u8]> {
    let rest = bytes[offset..].strip_prefix(MARKER)?;
    let len = usize::try_from(u32::from_le_bytes(*rest.first_chunk()?)).ok()?;
    let body = rest.get(8..)?.get(..len)?;
    BODY_LEN.contains(&len).then_some(body)
}

fn checksum(segment: u64, offset: usize, body: &[u8]) -> u32 {
    let mut crc = !0_u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg());
            }
        }
    };
    add(&segment.to_le_bytes());
    add(&(offset as u64).to_le_bytes());
    add(&(body.len() as u32).to_le_bytes());
    add(body);
    !crc
}
