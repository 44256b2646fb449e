//! The publisher: one thread that publishes the events of all cells, in order.
//!
//! A change of state is queued as the name of an executable; the thread compares the record with
//! what has been published, publishes the difference and appends to the event cursor. A stalled
//! disk so delays events, but no call: no lock of a cell is held meanwhile. The queue is bounded by
//! the number of executables, because each is in it at most once.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use super::cell::{Cell, Published};
use super::event_cursor::{CursorEntry, EventCursor};
use super::events::{CellEvents, events_since};
use super::lock;
use crate::name::ExecutableName;

/// How long the drop of the engine waits for events that are still queued. Those of a stalled disk
/// are published by the next daemon.
const DROP_TIMEOUT: Duration = Duration::from_secs(5);

/// The engine's handle of the publisher thread. The thread drains the queue and exits when it is
/// dropped.
#[derive(Debug)]
pub(super) struct Publisher {
    queue: Arc<Queue>,
}

/// The state of the publisher thread.
pub(super) struct PublisherThread {
    queue: Arc<Queue>,
    events: Box<dyn CellEvents>,
    cursor: EventCursor,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<QueueState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct QueueState {
    jobs: VecDeque<Job>,
    /// The number of jobs ever queued, and of those that are done.
    queued: u64,
    done: u64,
    exit: bool,
}

#[derive(Debug)]
enum Job {
    /// Publishes the new events of an executable.
    Publish(Arc<Cell>, ExecutableName),
    /// Removes the event cursor; there is no cell left.
    ClearCursor,
}

impl Publisher {
    pub(super) fn new(events: Box<dyn CellEvents>, cursor: EventCursor) -> (Self, PublisherThread) {
        let queue = Arc::new(Queue::default());
        let publisher = Self {
            queue: Arc::clone(&queue),
        };
        let thread = PublisherThread {
            queue,
            events,
            cursor,
        };
        (publisher, thread)
    }

    /// Queues the new events of an executable, unless it is queued already.
    pub(super) fn publish(&self, cell: &Arc<Cell>, name: &ExecutableName) {
        if cell.state().queued_events.insert(name.clone()) {
            self.queue
                .push(Job::Publish(Arc::clone(cell), name.clone()));
        }
    }

    /// Removes the event cursor after all queued events are published.
    pub(super) fn clear_cursor(&self) {
        self.queue.push(Job::ClearCursor);
    }

    /// Waits until everything queued so far is published.
    pub(super) fn flush(&self) {
        let mut state = lock(&self.queue.state);
        let until = state.queued;
        while state.done < until {
            state = self.queue.wait(state);
        }
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        let mut state = lock(&self.queue.state);
        state.exit = true;
        self.queue.changed.notify_all();
        let pending = |state: &mut QueueState| state.done < state.queued;
        let _ = self
            .queue
            .changed
            .wait_timeout_while(state, DROP_TIMEOUT, pending);
    }
}

impl Queue {
    fn push(&self, job: Job) {
        let mut state = lock(&self.state);
        state.jobs.push_back(job);
        state.queued += 1;
        drop(state);
        self.changed.notify_all();
    }

    fn wait<'a>(&self, state: MutexGuard<'a, QueueState>) -> MutexGuard<'a, QueueState> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Waits for the next job; `None` when the engine is dropped and the queue is empty.
    fn next(&self) -> Option<Job> {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.jobs.pop_front() {
                return Some(job);
            }
            if state.exit {
                return None;
            }
            state = self.wait(state);
        }
    }
}

impl PublisherThread {
    /// Replaces the entries of the event cursor, before the thread is started.
    pub(super) fn replace_cursor(&mut self, entries: &[CursorEntry]) -> io::Result<()> {
        self.cursor.replace(entries)
    }

    pub(super) fn start(mut self) -> io::Result<()> {
        let builder = thread::Builder::new().name("cell-events".to_owned());
        builder.spawn(move || {
            while let Some(job) = self.queue.next() {
                match job {
                    Job::Publish(cell, name) => self.publish(&cell, &name),
                    Job::ClearCursor => self.cursor.clear(),
                }
                lock(&self.queue.state).done += 1;
                self.queue.changed.notify_all();
            }
        })?;
        Ok(())
    }

    fn publish(&mut self, cell: &Cell, name: &ExecutableName) {
        let (record, published) = {
            let mut state = cell.state();
            // Before the record is taken: a newer one is queued again.
            state.queued_events.remove(name);
            let Some(record) = state.executables.get(name) else {
                return;
            };
            (Arc::clone(record), state.published.get(name).copied())
        };
        let now = Published::of(&record);
        if published == Some(now) {
            return;
        }
        for event in events_since(published, &record) {
            self.events.publish(event);
        }
        let entry = CursorEntry {
            cell: cell.name().clone(),
            allocated: cell.record.allocated,
            executable: name.clone(),
            published: now,
        };
        if let Err(error) = self.cursor.append(&entry) {
            tracing::warn!(
                cell = %cell.name(), %error,
                "cannot persist the event cursor; events may be published twice"
            );
        }
        cell.state().published.insert(name.clone(), now);
    }
}
