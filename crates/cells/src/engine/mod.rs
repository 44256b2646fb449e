//! The cells of this node: made, filled, emptied and removed, and found again after a restart.
//!
//! What is on disk and in the kernel is the truth; the daemon only keeps it at hand. Nothing here
//! works for a cell in which nothing happens: one thread waits for records that shims write and
//! for shims that end, for all cells together.

mod adopt;
mod allocate;
mod cell;
mod error;
mod events;
mod free;
mod notes;
mod places;
mod programs;
mod start;
mod status;
mod stop;
mod turns;
mod watch;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_journal::{LogError, LogLimits, LogStore};

pub use error::CellError;
pub use events::{CellEvent, CellEvents};
pub use status::{CellStatus, FoundRun, Usage};
pub use stop::StopHow;

use crate::cgroup::{CgroupError, Cgroups, Layout, Mode};
use crate::name::{CellName, ExecutableName};
use crate::record::Run;
use crate::shim::protocol::UserRange;
use crate::spec::{CellSpec, ExecutableSpec};
use crate::zygote::{Hidden, Zygote, ZygoteCommand};
use cell::Cell;
use notes::Notes;
use places::Places;
use watch::Watch;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The daemon's state: no cell can see it.
    pub state: PathBuf,
    /// The control group, in every tree, below which all of ours are.
    pub cgroup: String,
    /// How this machine's control groups are mounted, if not as they are found.
    pub layout: Option<Layout>,
    pub zygote: ZygoteCommand,
    /// How much of an executable's output is kept.
    pub logs: LogLimits,
    /// How long an executable may take to end when asked to.
    pub grace: Duration,
    /// The first user of the host that stands for users of a cell with a namespace of them, and
    /// how many do.
    pub users: (u32, u32),
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("the records of cells in {} cannot be used", path.display())]
    Records { path: PathBuf, source: io::Error },
    #[error("the logs of cells cannot be opened")]
    Logs(#[from] LogError),
    #[error("cells cannot be watched")]
    Watch(#[source] io::Error),
    #[error("the control groups of this machine cannot be found out")]
    Layout(#[source] io::Error),
}

/// The engine. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cells(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    grace: Mutex<Duration>,
    logs_limits: Mutex<LogLimits>,
    users: UserRange,
    /// Or why there can be no cells here.
    cgroups: Result<Cgroups, CgroupError>,
    places: Places,
    zygote: Zygote,
    logs: LogStore,
    events: Box<dyn CellEvents>,
    notes: Mutex<Notes>,
    cells: Mutex<BTreeMap<CellName, Arc<Cell>>>,
    serials: AtomicU64,
    watch: Watch,
}

/// What was allocated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// Whether limits are held by version 2 of control groups.
    pub cgroup_v2: bool,
}

impl Cells {
    /// Takes over what is there. Blocks on the disk and the kernel.
    pub fn open(settings: Settings, events: impl CellEvents) -> Result<Self, OpenError> {
        let root = settings.state.join("cells");
        let places = Places::make(&root).map_err(|source| OpenError::Records {
            path: root.clone(),
            source,
        })?;
        let layout = match settings.layout {
            Some(layout) => layout,
            None => Layout::detect().map_err(OpenError::Layout)?,
        };
        let hidden = Hidden {
            state: settings.state,
            cover: places.cover.clone(),
        };
        // Before anything is read, so that nothing written after that goes unseen.
        let (watch, watching) = Watch::new(&places.executables).map_err(OpenError::Watch)?;
        let notes = Notes::new(places.told());
        let inner = Arc::new(Inner {
            grace: Mutex::new(settings.grace),
            logs_limits: Mutex::new(settings.logs),
            users: UserRange {
                first: settings.users.0,
                count: settings.users.1,
            },
            cgroups: Cgroups::new(layout, settings.cgroup),
            zygote: Zygote::new(settings.zygote, hidden),
            logs: LogStore::open(&places.logs)?,
            places,
            events: Box::new(events),
            notes: Mutex::new(notes),
            cells: Mutex::default(),
            serials: AtomicU64::new(1),
            watch,
        });
        adopt::adopt(&inner).map_err(|source| OpenError::Records { path: root, source })?;
        watching
            .start(Arc::downgrade(&inner))
            .map_err(OpenError::Watch)?;
        Ok(Self(inner))
    }

    pub fn set_grace(&self, grace: Duration) {
        *lock(&self.0.grace) = grace;
    }

    pub fn set_log_limits(&self, limits: LogLimits) {
        *lock(&self.0.logs_limits) = limits;
    }

    pub async fn allocate(&self, cell: CellName, spec: CellSpec) -> Result<Allocated, CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        to_its_end(
            name,
            async move { allocate::allocate(inner, cell, spec).await },
        )
        .await
    }

    pub async fn start(
        &self,
        cell: CellName,
        executable: ExecutableName,
        spec: ExecutableSpec,
    ) -> Result<Run, CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        to_its_end(name, async move {
            start::start(inner, cell, executable, spec).await
        })
        .await
    }

    /// Ends one executable, or all of the cell.
    pub async fn stop(
        &self,
        cell: CellName,
        executable: Option<ExecutableName>,
        how: StopHow,
    ) -> Result<(), CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        to_its_end(name, async move {
            stop::stop(inner, cell, executable, how).await
        })
        .await
    }

    pub async fn free(&self, cell: CellName) -> Result<(), CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        to_its_end(name, async move { free::free(inner, cell).await }).await
    }

    /// The logs of executables, by the names that their status tells.
    pub fn logs(&self) -> &LogStore {
        &self.0.logs
    }
}

/// Work on a cell goes on when whoever asked for it goes away: half of it would be worse.
async fn to_its_end<T: Send + 'static>(
    cell: CellName,
    work: impl Future<Output = Result<T, CellError>> + Send + 'static,
) -> Result<T, CellError> {
    let done = tokio::spawn(work).await;
    done.unwrap_or(Err(CellError::Interrupted { cell }))
}

impl Inner {
    fn cells(&self) -> MutexGuard<'_, BTreeMap<CellName, Arc<Cell>>> {
        lock(&self.cells)
    }

    /// A cell that is there for whoever comes now.
    fn find(&self, name: &CellName) -> Result<Arc<Cell>, CellError> {
        let cell = self.cells().get(name).cloned();
        cell.filter(|cell| cell.is_there())
            .ok_or_else(|| CellError::NoSuchCell { cell: name.clone() })
    }

    fn cgroups(&self) -> Result<&Cgroups, CellError> {
        if !rustix::process::geteuid().is_root() {
            return Err(CellError::NotRoot);
        }
        let none = |_: &CgroupError| CellError::Cgroup(CgroupError::None);
        self.cgroups.as_ref().map_err(none)
    }

    fn is_v2(&self) -> bool {
        self.cgroups
            .as_ref()
            .is_ok_and(|groups| groups.mode() == Mode::V2)
    }

    fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs what blocks where it may.
async fn blocking<T: Send + 'static>(
    cell: &CellName,
    work: impl FnOnce() -> Result<T, CellError> + Send + 'static,
) -> Result<T, CellError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(CellError::Interrupted { cell: cell.clone() }))
}
