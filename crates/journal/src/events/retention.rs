//! Retention of events: which segments are deleted.

use std::time::Duration;

use super::directory::Segment;
use crate::Timestamp;

const MIB: u64 = 1024 * 1024;

/// Limits of retention. Whole segments are deleted, oldest first, while at least `min_events` newer
/// events remain: when all events of a segment are older than `min_age`, or when all segments
/// together exceed `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventRetention {
    pub min_events: u64,
    pub min_age: Duration,
    pub max_bytes: u64,
}

impl Default for EventRetention {
    fn default() -> Self {
        Self {
            min_events: 10_000,
            min_age: Duration::from_secs(24 * 60 * 60),
            max_bytes: 64 * MIB,
        }
    }
}

impl EventRetention {
    /// The maximum size of a segment, a fraction of the total.
    pub(super) fn segment_bytes(&self) -> u64 {
        (self.max_bytes / 16).clamp(4096, MIB)
    }

    /// Returns the number of oldest segments to delete. The last one is being written and stays.
    pub(super) fn expired(&self, segments: &[Segment], now: Timestamp) -> usize {
        let min_age = i64::try_from(self.min_age.as_nanos()).unwrap_or(i64::MAX);
        let old = Timestamp::from_nanos(now.as_nanos().saturating_sub(min_age));
        let mut events: u64 = segments.iter().map(|segment| segment.events).sum();
        let mut bytes: u64 = segments.iter().map(|segment| segment.bytes).sum();
        segments[..segments.len().saturating_sub(1)]
            .iter()
            .take_while(|segment| {
                events -= segment.events;
                let too_large = bytes > self.max_bytes;
                bytes -= segment.bytes;
                let too_old = segment.newest.is_none_or(|newest| newest < old);
                events >= self.min_events && (too_old || too_large)
            })
            .count()
    }
}
