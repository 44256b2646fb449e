//! What an event is, what names it, and where a subscription may begin.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::Timestamp;

/// Names one event for good. The time tells apart two events of the same number, which can exist
/// when the state was wiped or a power cut took events that were not yet flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    pub seq: u64,
    pub time: Timestamp,
}

/// The text is not 32 lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an event id; an event id is 32 lower-case hexadecimal digits")]
pub struct InvalidEventId;

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.seq, self.time.as_nanos())
    }
}

impl FromStr for EventId {
    type Err = InvalidEventId;

    fn from_str(text: &str) -> Result<Self, InvalidEventId> {
        // `from_str_radix` alone would also take a sign or capitals.
        let strict = text.len() == 32
            && text
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if !strict {
            return Err(InvalidEventId);
        }
        let (seq, time) = text.split_at(16);
        let number = |digits| u64::from_str_radix(digits, 16).map_err(|_| InvalidEventId);
        let nanos = i64::from_ne_bytes(number(time)?.to_ne_bytes());
        Ok(Self {
            seq: number(seq)?,
            time: Timestamp::from_nanos(nanos),
        })
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    pub id: EventId,
    pub kind: Box<str>,
    pub payload: Bytes,
}

/// What a subscription hands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    Event(Arc<Event>),
    /// Events between the one before and the one after are no longer, or not readably, kept.
    Missed {
        count: u64,
    },
}

/// Where a subscription begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// With the next event published.
    Now,
    /// With the oldest event kept.
    All,
    /// With the newest so many sequence numbers.
    Last(u64),
    /// With the event after this one.
    After(EventId),
    /// With the first event that is not older, be it kept or yet to come; everything after it is
    /// delivered whatever its time, because clocks are set back.
    Since(Timestamp),
}
