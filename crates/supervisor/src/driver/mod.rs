//! The driver: carries the effects of the core out on cells, and reports back what happens.
//!
//! The state is behind one lock, which is held over no I/O. Work on a process is a task that ends
//! with it; an idle service has none, and all timers are in one heap.

mod adopt;
mod effects;
mod event_loop;
mod health;
mod publisher;
mod requests;
mod slot;
mod status;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_cells::{CellEvent, CellEvents, Cells};
use tokio::sync::{Notify, OnceCell, Semaphore, mpsc};
use tokio::time::Instant;

pub use publisher::SupervisorEvents;
pub use requests::{NotDown, ServiceError};
pub use slot::HistoryEntry;
pub use status::ServiceStatus;

use crate::core::{Core, Effect};
use crate::stopped::StoppedServices;
use crate::{Definition, SHARED_CELLS, ServiceName};
use publisher::Publisher;
use slot::Slot;

/// Health checks at the same time.
const MAX_PROBES: usize = 64;

/// The supervisor's configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Of an engine for services alone; its state directory is also the supervisor's.
    pub cells: mainstay_cells::Settings,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot open the cells of services")]
    Cells(#[from] mainstay_cells::OpenError),
    #[error("cannot create {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the thread that publishes changes of services")]
    Thread(#[source] io::Error),
}

/// The supervisor of services. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Supervisor(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    cells: Cells,
    /// Each set once that cell exists.
    shared_cells: [OnceCell<()>; SHARED_CELLS.len()],
    state: Mutex<State>,
    /// Notified after every change of the state.
    changed: Notify,
    /// Notified when a timer was added that is due before all others.
    earlier_timer: Arc<Notify>,
    publisher: Publisher,
    probes: Semaphore,
    stopped: Mutex<StoppedServices>,
}

#[derive(Debug)]
struct State {
    core: Core,
    slots: BTreeMap<ServiceName, Slot>,
    timers: BinaryHeap<Reverse<Timer>>,
    /// All services are down for a sequence: none is started by request.
    held: bool,
    origin: Instant,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Timer {
    at: Instant,
    number: u64,
    service: ServiceName,
}

/// Forwards the events of cells to the supervisor.
#[derive(Debug)]
struct Forward(mpsc::UnboundedSender<CellEvent>);

impl CellEvents for Forward {
    fn publish(&self, event: CellEvent) {
        // Fails when the supervisor is gone.
        let _ = self.0.send(event);
    }
}

impl Supervisor {
    /// Opens the supervisor, adopts what an earlier one left, and starts the services that are
    /// enabled. Blocks on the disk and the kernel; called within a runtime.
    ///
    /// The definitions must have passed [`crate::graph::check`].
    pub fn open(
        settings: Settings,
        definitions: BTreeMap<ServiceName, Arc<Definition>>,
        events: impl SupervisorEvents,
    ) -> Result<Self, OpenError> {
        let directory = settings.cells.state.clone();
        std::fs::create_dir_all(&directory).map_err(|source| OpenError::Directory {
            path: directory.clone(),
            source,
        })?;
        let (sender, ends) = mpsc::unbounded_channel();
        let cells = Cells::open(settings.cells, Forward(sender))?;
        let earlier_timer = Arc::new(Notify::new());
        let inner = Arc::new(Inner {
            cells,
            shared_cells: Default::default(),
            state: Mutex::new(State {
                core: Core::default(),
                slots: BTreeMap::new(),
                timers: BinaryHeap::new(),
                held: false,
                origin: Instant::now(),
            }),
            changed: Notify::new(),
            earlier_timer: Arc::clone(&earlier_timer),
            publisher: Publisher::start(Box::new(events)).map_err(OpenError::Thread)?,
            probes: Semaphore::new(MAX_PROBES),
            stopped: Mutex::new(StoppedServices::open(directory.join("stopped.json"))),
        });
        adopt::adopt(&inner, definitions);
        tokio::spawn(event_loop::run(Arc::downgrade(&inner), ends, earlier_timer));
        Ok(Self(inner))
    }

    /// The engine that the services run in.
    pub fn cells(&self) -> &Cells {
        &self.0.cells
    }

    /// Waits until every change so far has been published. Blocks.
    pub fn flush(&self) {
        self.0.publisher.flush();
    }
}

impl Inner {
    /// Locks the state. Never held over I/O.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reports something to the core, and carries out what follows.
    fn act(self: &Arc<Self>, report: impl FnOnce(&mut Core, Duration) -> Vec<Effect>) {
        let mut state = self.state();
        let now = state.now();
        let effects = report(&mut state.core, now);
        self.carry_out(&mut state, effects);
        drop(state);
        self.changed.notify_waiters();
    }

    /// Waits until `ready` returns a value.
    async fn wait_for<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            // Registered before the check, so that no change in between is missed.
            let changed = self.changed.notified();
            let value = ready(&mut self.state());
            match value {
                Some(value) => return value,
                None => changed.await,
            }
        }
    }
}

impl State {
    fn now(&self) -> Duration {
        self.origin.elapsed()
    }
}
