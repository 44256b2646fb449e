//! Events, their ids, and the start of a subscription.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use bytes::Bytes;

use crate::Timestamp;

/// The permanent id of an event. Two events can have the same number, when the state was wiped or
/// power loss took unflushed events; their times differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EventId {
    pub seq: u64,
    pub time: Timestamp,
}

/// The error of text that is not 32 lower-case hexadecimal digits.
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
        // `from_str_radix` alone would also accept a sign or capitals.
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

/// An item of a subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    Event(Arc<Event>),
    /// Events between the one before and the one after are dropped or unreadable.
    Missed {
        count: u64,
    },
}

/// The start of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartAt {
    /// The next event published.
    Now,
    /// The oldest event kept.
    All,
    /// The newest `n` sequence numbers.
    Last(u64),
    /// The event after this one.
    After(EventId),
    /// The first event that is not older, kept or future; all events after it are delivered
    /// whatever their time, because clocks are set back.
    Since(Timestamp),
}
