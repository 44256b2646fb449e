//! The event store: publishing, retention, and the start of subscriptions.
//!
//! Two locks: the writer's is held while a record is written, the view's only to read or change
//! memory, so that subscribers never wait for the disk.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::watch;

use super::directory::{Directory, Segment};
use super::error::EventError;
use super::event::{Event, EventId, StartAt};
use super::history::{Position, read_page};
use super::record::{MAX_KIND, MAX_PAYLOAD, MIN_RECORD};
use super::retention::EventRetention;
use super::ring::Ring;
use super::subscription::{Start, Subscription};
use super::writer::Writer;
use crate::Timestamp;

/// The events of one directory. Cheap to clone; all clones are the same store.
#[derive(Clone, Debug)]
pub struct EventStore(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    directory: Directory,
    retention: Mutex<EventRetention>,
    writer: Mutex<Writer>,
    view: Mutex<View>,
    /// The newest sequence number published.
    head: watch::Sender<u64>,
}

/// The state visible to readers.
#[derive(Debug)]
struct View {
    ring: Ring,
    /// Never empty; the last one is being written.
    segments: Vec<Segment>,
    last: Option<EventId>,
}

/// The events from some number on, or the segments to read them from.
pub(super) enum Found {
    InMemory(Vec<Arc<Event>>),
    OnDisk(Vec<Segment>),
}

impl EventStore {
    /// Opens or creates the store in `dir` and locks it. Blocks on the disk.
    pub fn open(dir: &Path, retention: EventRetention) -> Result<Self, EventError> {
        let directory = Directory::lock(dir)?;
        let mut inventory = directory.scan()?;
        let writer = Writer::open(&directory, &mut inventory, retention.segment_bytes())?;
        let (head, _) = watch::channel(inventory.next_seq - 1);
        let view = View {
            ring: Ring::default(),
            segments: inventory.segments,
            last: inventory.last,
        };
        let store = Self(Arc::new(Inner {
            directory,
            retention: Mutex::new(retention),
            writer: Mutex::new(writer),
            view: Mutex::new(view),
            head,
        }));
        store.drop_expired(&retention);
        Ok(store)
    }

    /// Publishes an event. On return the event is visible to every subscriber and survives the
    /// death of this process; after [`EventStore::sync`] it survives power loss. Blocks on the disk.
    pub fn publish(&self, kind: &str, payload: &[u8]) -> Result<Arc<Event>, EventError> {
        if kind.len() > MAX_KIND {
            return Err(EventError::KindTooLong { len: kind.len() });
        }
        if payload.len() > MAX_PAYLOAD {
            return Err(EventError::PayloadTooLarge { len: payload.len() });
        }
        let retention = *lock(&self.0.retention);
        let record_bytes = MIN_RECORD + kind.len() + payload.len();
        let mut writer = lock(&self.0.writer);
        if writer.needs_new_segment(record_bytes, retention.segment_bytes()) {
            let segment = writer.start_segment(&self.0.directory)?;
            let mut view = self.view();
            view.segments.retain(|known| known.first != segment.first);
            view.segments.push(segment);
            drop(view);
            self.drop_expired(&retention);
        }
        let (id, end) = writer.append(kind, payload)?;
        let event = Arc::new(Event {
            id,
            kind: kind.into(),
            payload: Bytes::copy_from_slice(payload),
        });
        let mut view = self.view();
        view.ring.push(Arc::clone(&event));
        view.last = Some(id);
        if let Some(segment) = view.segments.last_mut() {
            segment.add(id.time, end);
        }
        drop(view);
        // Still under the writer's lock, so that the head never decreases.
        self.0.head.send_replace(id.seq);
        Ok(event)
    }

    /// Flushes all events published so far to disk. Blocks, without blocking other calls.
    pub fn sync(&self) -> Result<(), EventError> {
        let file = lock(&self.0.writer).file();
        file.sync_data().map_err(|source| EventError::Sync {
            path: self.0.directory.path().to_owned(),
            source,
        })
    }

    /// Changes the retention; deletes segments at once if less is to be kept.
    pub fn set_retention(&self, retention: EventRetention) {
        *lock(&self.0.retention) = retention;
        let _writer = lock(&self.0.writer);
        self.drop_expired(&retention);
    }

    /// Returns the id of the newest event.
    pub fn last(&self) -> Option<EventId> {
        self.view().last
    }

    /// Starts a subscription. [`StartAt::After`] an event no longer in memory reads that event from
    /// disk to compare its id; everything else happens in memory.
    pub fn subscribe(&self, from: StartAt) -> Result<Subscription, EventError> {
        let head = self.0.head.subscribe();
        let newest = *head.borrow();
        let oldest = self
            .view()
            .segments
            .first()
            .map_or(1, |segment| segment.first);
        let mut since = None;
        let seq = match from {
            StartAt::Now => newest + 1,
            StartAt::All => oldest,
            StartAt::Last(count) => (newest + 1).saturating_sub(count).max(oldest),
            StartAt::After(id) => {
                self.check_known(id, newest, oldest)?;
                id.seq + 1
            }
            StartAt::Since(time) => {
                since = Some(time);
                self.first_segment_since(time).unwrap_or(newest + 1)
            }
        };
        Ok(Subscription::new(
            self.clone(),
            head,
            Start {
                seq,
                kept_end: newest,
                since,
            },
        ))
    }

    /// Refuses an id whose number exists with another time: it is from before the state was wiped.
    fn check_known(&self, id: EventId, newest: u64, oldest: u64) -> Result<(), EventError> {
        let unknown = EventError::UnknownId { id };
        if id.seq == 0 || id.seq > newest {
            return Err(unknown);
        }
        if id.seq < oldest {
            return Ok(());
        }
        let found = match self.find(id.seq, 1) {
            Found::InMemory(events) => events,
            Found::OnDisk(segments) => self.read_from_disk(&segments, id.seq, None, 1)?.0,
        };
        match found.first() {
            Some(event) if event.id.seq == id.seq && event.id != id => Err(unknown),
            _ => Ok(()),
        }
    }

    /// Returns the first number of the segment with the first event that is not older.
    fn first_segment_since(&self, time: Timestamp) -> Option<u64> {
        let view = self.view();
        let recent = |segment: &&Segment| segment.newest.is_some_and(|newest| newest >= time);
        view.segments
            .iter()
            .find(recent)
            .map(|segment| segment.first)
    }

    pub(super) fn find(&self, seq: u64, max: usize) -> Found {
        let view = self.view();
        match view.ring.run_from(seq, max) {
            Some(events) => Found::InMemory(events),
            None => Found::OnDisk(view.segments.clone()),
        }
    }

    pub(super) fn read_from_disk(
        &self,
        segments: &[Segment],
        seq: u64,
        position: Option<Position>,
        max: usize,
    ) -> Result<(Vec<Arc<Event>>, Option<Position>), EventError> {
        let page = read_page(&self.0.directory, segments, seq, position, max)?;
        Ok((page.events, page.next))
    }

    /// Deletes expired segments. Called with the writer locked, or before the store is shared.
    fn drop_expired(&self, retention: &EventRetention) {
        let mut view = self.view();
        let count = retention.expired(&view.segments, Timestamp::now());
        let expired: Vec<Segment> = view.segments.drain(..count).collect();
        drop(view);
        for segment in expired {
            // A file that cannot be removed is found again when the store is next opened.
            let _ = fs::remove_file(self.0.directory.segment_path(segment.first));
        }
    }

    fn view(&self) -> MutexGuard<'_, View> {
        lock(&self.0.view)
    }
}

/// A panic elsewhere leaves these values whole: each change under a lock is complete in itself.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
