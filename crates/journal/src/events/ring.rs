//! The newest events in memory, for subscribers that keep up.
//!
//! Bounded in number and in bytes; its sequence numbers have no gaps.

use std::collections::VecDeque;
use std::sync::Arc;

use super::event::Event;

const MAX_EVENTS: usize = 1024;
const MAX_BYTES: usize = 1024 * 1024;

#[derive(Debug, Default)]
pub(super) struct Ring {
    events: VecDeque<Arc<Event>>,
    bytes: usize,
}

impl Ring {
    pub(super) fn push(&mut self, event: Arc<Event>) {
        self.bytes += size(&event);
        self.events.push_back(event);
        while self.events.len() > MAX_EVENTS || (self.bytes > MAX_BYTES && self.events.len() > 1) {
            if let Some(oldest) = self.events.pop_front() {
                self.bytes -= size(&oldest);
            }
        }
    }

    fn index_of(&self, seq: u64) -> Option<usize> {
        let first = self.events.front()?.id.seq;
        usize::try_from(seq.checked_sub(first)?).ok()
    }

    /// Returns up to `max` events from `seq` on; `None` if `seq` is not in the ring.
    pub(super) fn run_from(&self, seq: u64, max: usize) -> Option<Vec<Arc<Event>>> {
        let start = self
            .index_of(seq)
            .filter(|index| *index < self.events.len())?;
        let end = start.saturating_add(max).min(self.events.len());
        Some(self.events.range(start..end).cloned().collect())
    }
}

fn size(event: &Event) -> usize {
    event.kind.len() + event.payload.len() + size_of::<Event>()
}
