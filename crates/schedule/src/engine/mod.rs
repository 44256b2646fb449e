//! The engine: waits for times, has the runner do the work, and keeps the results.
//!
//! The state is behind one lock, which is held over no I/O. One task waits for the next time of all
//! timers; a schedule has a task of its own only while its work runs or waits to be restarted.

mod clock;
mod error;
mod requests;
mod runs;
mod times;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

pub use error::ScheduleError;

use crate::store::{OpenError, Record, Store};
use crate::{Entry, ScheduleName};
use clock::Clock;
use runs::Job;

/// The number of schedules.
const MAX_SCHEDULES: usize = 256;
/// The results kept of each.
const MAX_RUNS: usize = 10;

/// Does the work of schedules.
pub trait Runner: Send + Sync + 'static {
    type Work: Clone + PartialEq + Serialize + DeserializeOwned + Send + Sync + 'static;

    /// Starts the work. An error is the reason for people.
    fn start(&self, work: &Self::Work) -> impl Future<Output = Result<Begun, String>> + Send;

    /// Returns the work if it runs, also if something else started it.
    fn running(&self, work: &Self::Work) -> Option<Begun>;

    /// Waits until the work ends; returns at once if it has ended.
    fn until_ended(&self, work: &Self::Work, begun: &Begun) -> impl Future<Output = Ended> + Send;

    /// Stops the work if it runs.
    fn stop(&self, work: &Self::Work) -> impl Future<Output = Result<(), String>> + Send;

    /// Publishes a change. Called without a lock; may block for one small write.
    fn publish(&self, change: Change);
}

/// Work that was started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Begun {
    /// On the host; 0 if it is no process.
    pub pid: i32,
    /// Unix nanoseconds.
    pub started: i64,
}

/// The end of work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Unix nanoseconds.
    pub at: i64,
    pub succeeded: bool,
    /// For people: `exited with code 0`.
    pub result: String,
}

/// A run that is over, or could not be started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FinishedRun {
    pub begun: Begun,
    pub ended: Ended,
}

/// An event of a schedule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    Started {
        name: ScheduleName,
        pid: i32,
    },
    Ended {
        name: ScheduleName,
        ended: Ended,
    },
    /// A run was due while the one before went on.
    Skipped {
        name: ScheduleName,
    },
    /// The node was down, or its clock jumped, when runs were due.
    Missed {
        name: ScheduleName,
        made_up: bool,
    },
    Enabled {
        name: ScheduleName,
    },
    Disabled {
        name: ScheduleName,
    },
    Destroyed {
        name: ScheduleName,
    },
}

/// A schedule as it is now.
#[derive(Debug, Clone)]
pub struct Status<W> {
    pub entry: Arc<Entry<W>>,
    pub enabled: bool,
    pub next: Option<Timestamp>,
    pub running: Option<Begun>,
    /// The latest first.
    pub runs: Vec<FinishedRun>,
    pub skipped: u64,
    pub missed: u64,
}

/// The schedules of a node. Cheap to clone.
pub struct Schedules<R: Runner>(Arc<Inner<R>>);

impl<R: Runner> Clone for Schedules<R> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<R: Runner> std::fmt::Debug for Schedules<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Schedules").finish_non_exhaustive()
    }
}

struct Inner<R: Runner> {
    runner: R,
    store: Store,
    state: Mutex<State<R::Work>>,
    /// Notified when the next time may have changed.
    changed: Notify,
}

struct State<W> {
    slots: BTreeMap<ScheduleName, Slot<W>>,
    /// Nothing is started for a sequence.
    held: bool,
}

struct Slot<W> {
    entry: Arc<Entry<W>>,
    enabled: bool,
    anchor: Timestamp,
    considered: Timestamp,
    /// With jitter.
    next: Option<Timestamp>,
    /// Differs from that of every other schedule, also of the same name.
    id: u64,
    /// Whether a task works for it.
    worker: bool,
    running: Option<Begun>,
    runs: Vec<FinishedRun>,
    skipped: u64,
    missed: u64,
    /// Notified when a worker that waits to restart should look again.
    wake: Arc<Notify>,
}

impl<R: Runner> Schedules<R> {
    /// Reads the schedules in `directory`, takes over what still runs, and begins to wait. Blocks on
    /// the disk; called within a runtime.
    pub fn open(directory: &Path, runner: R) -> Result<Self, OpenError> {
        let (store, records) = Store::open::<R::Work>(directory)?;
        let clock = Clock::new().map_err(OpenError::Clock)?;
        let slots = records.into_iter().map(|record| {
            let name = record.entry.name.clone();
            (name, Slot::of(record))
        });
        let inner = Arc::new(Inner {
            runner,
            store,
            state: Mutex::new(State {
                slots: slots.collect(),
                held: false,
            }),
            changed: Notify::new(),
        });
        runs::resume(&inner);
        tokio::spawn(times::run(Arc::downgrade(&inner), clock));
        Ok(Self(inner))
    }

    /// Lists the schedules in the order of their names.
    pub fn list(&self) -> Vec<Status<R::Work>> {
        self.0.state().slots.values().map(Slot::status).collect()
    }

    /// Starts nothing any more, as before the node stops, or goes on.
    pub fn hold(&self, held: bool) {
        let mut state = self.0.state();
        state.held = held;
        for slot in state.slots.values() {
            slot.wake.notify_one();
        }
        drop(state);
        if !held {
            runs::keep_all(&self.0);
        }
        self.0.changed.notify_one();
    }

    /// Waits until every change so far is on disk.
    pub async fn flush(&self) {
        // Errors are logged where they happen.
        let _ = self.0.store.written(None).await;
    }
}

impl<R: Runner> Inner<R> {
    /// Locks the state. Never held over I/O.
    fn state(&self) -> MutexGuard<'_, State<R::Work>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn save(&self, slot: &Slot<R::Work>) {
        self.store.write(&slot.record());
    }

    /// Changes a schedule that is still there and queues its record; returns whether it is.
    fn change(&self, job: &Job, change: impl FnOnce(&mut Slot<R::Work>)) -> bool {
        let mut state = self.state();
        let slot = state.slots.get_mut(&job.name);
        let Some(slot) = slot.filter(|slot| slot.id == job.id) else {
            return false;
        };
        change(slot);
        self.save(slot);
        true
    }

    /// Publishes off the async workers, in order.
    async fn publish(self: &Arc<Self>, change: Change) {
        let inner = Arc::clone(self);
        // Fails only if the runner panics.
        let _ = tokio::task::spawn_blocking(move || inner.runner.publish(change)).await;
    }
}

fn timestamp(nanos: i64) -> Timestamp {
    Timestamp::from_nanosecond(nanos.into()).unwrap_or(Timestamp::UNIX_EPOCH)
}

fn nanos(time: Timestamp) -> i64 {
    i64::try_from(time.as_nanosecond()).unwrap_or(i64::MAX)
}

impl<W: Clone + Serialize + DeserializeOwned> Slot<W> {
    fn new(entry: Entry<W>, now: Timestamp) -> Self {
        Self {
            entry: Arc::new(entry),
            enabled: true,
            anchor: now,
            considered: now,
            next: None,
            id: next_id(),
            worker: false,
            running: None,
            runs: Vec::new(),
            skipped: 0,
            missed: 0,
            wake: Arc::default(),
        }
    }

    fn of(record: Record<W>) -> Self {
        Self {
            entry: Arc::new(record.entry),
            enabled: record.enabled,
            anchor: timestamp(record.anchor),
            considered: timestamp(record.considered),
            next: None,
            id: next_id(),
            worker: false,
            running: record.running,
            runs: record.runs,
            skipped: record.skipped,
            missed: record.missed,
            wake: Arc::default(),
        }
    }

    fn record(&self) -> Record<W> {
        Record {
            entry: (*self.entry).clone(),
            enabled: self.enabled,
            anchor: nanos(self.anchor),
            considered: nanos(self.considered),
            running: self.running.clone(),
            runs: self.runs.clone(),
            skipped: self.skipped,
            missed: self.missed,
        }
    }

    fn status(&self) -> Status<W> {
        Status {
            entry: Arc::clone(&self.entry),
            enabled: self.enabled,
            next: self.next,
            running: self.running.clone(),
            runs: self.runs.clone(),
            skipped: self.skipped,
            missed: self.missed,
        }
    }
}

impl<W> Slot<W> {
    /// Whether the work is to run whenever it does not.
    fn is_kept(&self) -> bool {
        self.enabled && self.entry.timer.is_none()
    }

    fn job(&self, name: &ScheduleName) -> Job {
        Job {
            name: name.clone(),
            id: self.id,
        }
    }
}

fn next_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed)
}
