//! A subscription: a cursor into the events.
//!
//! It has no task and no buffer; it may be dropped, and its futures cancelled, at any moment
//! without losing an event. It must never block on the disk itself.

use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::spawn_blocking;

use super::error::EventError;
use super::event::{Delivery, Event};
use super::history::Position;
use super::store::{EventStore, Found};
use crate::Timestamp;

/// The resolved start of a subscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    pub(super) seq: u64,
    /// The newest number when the subscription was made.
    pub(super) kept_end: u64,
    /// Events are skipped until one is not older than this.
    pub(super) since: Option<Timestamp>,
}

#[derive(Debug)]
pub struct Subscription {
    store: EventStore,
    head: watch::Receiver<u64>,
    /// The number of the next event to deliver.
    next: u64,
    kept_end: u64,
    since: Option<Timestamp>,
    position: Option<Position>,
}

impl Subscription {
    pub(super) fn new(store: EventStore, head: watch::Receiver<u64>, start: Start) -> Self {
        Self {
            store,
            head,
            next: start.seq,
            kept_end: start.kept_end,
            since: start.since,
            position: None,
        }
    }

    /// Returns up to `max` deliveries in publish order; waits for the first.
    pub async fn next_batch(&mut self, max: usize) -> Result<Vec<Delivery>, EventError> {
        loop {
            let newest = *self.head.borrow_and_update();
            if self.next > newest {
                // Cannot fail: `store` keeps the sender alive.
                self.head
                    .changed()
                    .await
                    .map_err(|_| EventError::Interrupted)?;
                continue;
            }
            let batch = self.fetch(max, newest).await?;
            if !batch.is_empty() {
                return Ok(batch);
            }
        }
    }

    /// Like [`Subscription::next_batch`], but only up to the newest event as it was when the
    /// subscription was made; `None` when that has been delivered. Does not wait for new events.
    pub async fn next_kept(&mut self, max: usize) -> Result<Option<Vec<Delivery>>, EventError> {
        while self.next <= self.kept_end {
            let batch = self.fetch(max, self.kept_end).await?;
            if !batch.is_empty() {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// Advances by at least one number, to `end` at most. The result is empty if all events were
    /// skipped.
    async fn fetch(&mut self, max: usize, end: u64) -> Result<Vec<Delivery>, EventError> {
        let (seq, max) = (self.next, max.max(1));
        let (events, position) = match self.store.find(seq, max) {
            Found::InMemory(events) => (events, None),
            Found::OnDisk(segments) => {
                let (store, position) = (self.store.clone(), self.position);
                spawn_blocking(move || store.read_from_disk(&segments, seq, position, max))
                    .await
                    .map_err(|_| EventError::Interrupted)??
            }
        };
        self.position = position;
        Ok(self.deliver(events, end))
    }

    fn deliver(&mut self, events: Vec<Arc<Event>>, end: u64) -> Vec<Delivery> {
        let mut batch = Vec::with_capacity(events.len());
        let mut moved = false;
        for event in events.into_iter().take_while(|event| event.id.seq <= end) {
            self.skip_to(event.id.seq, &mut batch);
            self.next = event.id.seq + 1;
            moved = true;
            if self.since.is_none_or(|since| event.id.time >= since) {
                self.since = None;
                batch.push(Delivery::Event(event));
            }
        }
        if !moved {
            self.skip_to(end + 1, &mut batch);
        }
        batch
    }

    fn skip_to(&mut self, seq: u64, batch: &mut Vec<Delivery>) {
        if seq > self.next {
            batch.push(Delivery::Missed {
                count: seq - self.next,
            });
            self.next = seq;
        }
    }
}
