//! The engine: allocates cells, starts and stops executables in them, frees them, and adopts them
//! after a restart.
//!
//! The disk and the kernel hold the truth; the engine caches it. An idle cell costs no work: one
//! thread waits for the records and the exits of all shims together.

mod adopt;
mod allocate;
mod attach;
mod caller;
mod cell;
mod cgroup_cleanup;
mod cgroup_names;
mod default_pids;
mod error;
mod event_cursor;
mod events;
mod free;
mod idle_shims;
mod logs;
mod members;
mod paths;
mod permits;
mod program;
mod publisher;
mod record_files;
mod restart;
mod shim_call;
mod shim_exit;
mod start;
mod status;
mod stop;
mod transition;
mod watch_thread;

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use mainstay_journal::{LogError, LogLimits, LogStore};

pub use attach::{AttachOptions, Attachment, AttachmentReader, AttachmentWriter};
pub use error::CellError;
pub use events::{CellEvent, CellEvents};
pub use status::{CellStatus, FoundRun, Usage};
pub use stop::StopOptions;

use crate::cgroup::{CgroupError, CgroupMode, Cgroups, Layout};
use crate::name::{CellName, ExecutableName};
use crate::record::Run;
use crate::shim::protocol::UserRange;
use crate::spec::{CellSpec, ExecutableSpec};
use crate::zygote::{HiddenPaths, Zygote, ZygoteCommand};
use caller::Caller;
use cell::Cell;
use event_cursor::EventCursor;
use paths::Paths;
use publisher::Publisher;
use watch_thread::WatchHandle;

/// The engine's configuration.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The daemon's state directory, hidden in every cell.
    pub state: PathBuf,
    /// Further directories that are hidden in every cell where they exist when it starts.
    pub hidden: Vec<PathBuf>,
    /// The root of all cgroups of cells, in every hierarchy.
    pub cgroup: String,
    /// The cgroup layout, if it is not to be detected.
    pub layout: Option<Layout>,
    pub zygote: ZygoteCommand,
    /// Log sizes of each executable.
    pub logs: LogLimits,
    /// The share of the file system, in percent, that logs leave free; 0 for none.
    pub logs_keep_free: u8,
    /// The default time between the first signal of a Stop and SIGKILL.
    pub grace: Duration,
    /// The first host UID that user namespaces of cells map to, and the number of UIDs.
    pub uid_range: (u32, u32),
    /// Whether all cells get a user namespace.
    pub user_namespace: bool,
    /// The number of processes and threads in a cell without a limit of its own; `None` is unlimited.
    pub default_pids: Option<u32>,
    /// Executables run as those of an init system do: with the host's mounts as they are, the
    /// daemon's capabilities and no seccomp filter. For programs of the node's operator alone.
    pub unconfined: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot read the cell records in {}", path.display())]
    Records { path: PathBuf, source: io::Error },
    #[error("cannot open the logs of cells")]
    Logs(#[from] LogError),
    #[error("cannot watch cells")]
    Watch(#[source] io::Error),
    #[error("cannot detect the cgroup layout")]
    Layout(#[source] io::Error),
}

/// The engine of cells. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Cells(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    grace: Mutex<Duration>,
    logs_limits: Mutex<LogLimits>,
    logs_keep_free: AtomicU8,
    users: UserRange,
    user_namespace: bool,
    default_pids: Option<u32>,
    unconfined: bool,
    /// Or why this machine cannot run cells.
    cgroups: Result<Cgroups, CgroupError>,
    paths: Paths,
    zygote: Zygote,
    logs: LogStore,
    publisher: Publisher,
    /// Read by a call that creates cgroups, written by the removal of their common parents.
    cgroup_roots: RwLock<()>,
    cells: Mutex<BTreeMap<CellName, Arc<Cell>>>,
    /// Why records are unreadable whose cell's name is not known, by the key of the cell.
    unnamed: Mutex<BTreeMap<String, String>>,
    serials: AtomicU64,
    watch: WatchHandle,
}

/// The result of an Allocate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Allocated {
    /// Whether limits are enforced by cgroup v2.
    pub cgroup_v2: bool,
}

impl Cells {
    /// Opens the engine and adopts existing cells. Blocks on the disk and the kernel.
    pub fn open(settings: Settings, events: impl CellEvents) -> Result<Self, OpenError> {
        let root = settings.state.join("cells");
        let paths = Paths::create(&root).map_err(|source| OpenError::Records {
            path: root.clone(),
            source,
        })?;
        let layout = match settings.layout {
            Some(layout) => layout,
            None => Layout::detect().map_err(OpenError::Layout)?,
        };
        let mut directories = vec![settings.state];
        directories.extend(settings.hidden);
        let hidden = (!settings.unconfined).then_some(HiddenPaths { directories });
        // Before records are read, so that none written later is missed.
        let (watch, watch_thread) =
            WatchHandle::new(&paths.executables).map_err(OpenError::Watch)?;
        let cursor = EventCursor::new(paths.event_cursor());
        let (publisher, publisher_thread) = Publisher::new(Box::new(events), cursor);
        let inner = Arc::new(Inner {
            grace: Mutex::new(settings.grace),
            logs_limits: Mutex::new(settings.logs),
            logs_keep_free: AtomicU8::new(settings.logs_keep_free),
            users: UserRange {
                first: settings.uid_range.0,
                count: settings.uid_range.1,
            },
            user_namespace: settings.user_namespace,
            default_pids: settings.default_pids,
            unconfined: settings.unconfined,
            cgroups: Cgroups::new(layout, settings.cgroup),
            zygote: Zygote::new(settings.zygote, hidden),
            logs: LogStore::open(&paths.logs)?,
            paths,
            publisher,
            cgroup_roots: RwLock::default(),
            cells: Mutex::default(),
            unnamed: Mutex::default(),
            serials: AtomicU64::new(1),
            watch,
        });
        adopt::adopt(&inner, publisher_thread)
            .map_err(|source| OpenError::Records { path: root, source })?;
        watch_thread
            .start(Arc::downgrade(&inner))
            .map_err(OpenError::Watch)?;
        Ok(Self(inner))
    }

    pub fn set_grace(&self, grace: Duration) {
        *lock(&self.0.grace) = grace;
    }

    /// Changes the limits of logs, for executables started from now on.
    pub fn set_log_limits(&self, limits: LogLimits, keep_free: u8) {
        *lock(&self.0.logs_limits) = limits;
        self.0.logs_keep_free.store(keep_free, Ordering::Relaxed);
    }

    pub async fn allocate(&self, cell: CellName, spec: CellSpec) -> Result<Allocated, CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        run_to_completion(name, |caller| allocate::allocate(inner, caller, cell, spec)).await
    }

    pub async fn start(
        &self,
        cell: CellName,
        executable: ExecutableName,
        spec: ExecutableSpec,
    ) -> Result<Run, CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        run_to_completion(name, |caller| {
            start::start(inner, caller, cell, executable, spec)
        })
        .await
    }

    /// Stops an executable and starts it with `spec`. Once it is being stopped, it is also started,
    /// whether or not the caller still waits.
    pub async fn restart(
        &self,
        cell: CellName,
        executable: ExecutableName,
        spec: ExecutableSpec,
    ) -> Result<Run, CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        run_to_completion(name, |caller| {
            restart::restart(inner, caller, cell, executable, spec)
        })
        .await
    }

    /// Attaches to the standard input and the terminal of an executable.
    pub async fn attach(
        &self,
        cell: CellName,
        executable: ExecutableName,
        options: AttachOptions,
    ) -> Result<Attachment, CellError> {
        attach::attach(Arc::clone(&self.0), cell, executable, options).await
    }

    /// Stops one executable, or all executables of the cell.
    pub async fn stop(
        &self,
        cell: CellName,
        executable: Option<ExecutableName>,
        options: StopOptions,
    ) -> Result<(), CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        run_to_completion(name, |caller| {
            stop::stop(inner, caller, cell, executable, options)
        })
        .await
    }

    pub async fn free(&self, cell: CellName) -> Result<(), CellError> {
        let inner = Arc::clone(&self.0);
        let name = cell.clone();
        run_to_completion(name, |caller| free::free(inner, caller, cell)).await
    }

    /// Leaves the cells to another daemon, which may be of another build: ends the zygote, which the
    /// next executable would start again, and creates the logs that builds from before expect.
    /// Blocks on the disk.
    pub fn hand_over(&self) {
        self.0.zygote.stop();
        self.create_logs();
    }
}

/// Runs work that continues when its caller is cancelled: half of it would be worse. Work that has
/// not begun by then does not begin.
async fn run_to_completion<T, F>(
    cell: CellName,
    work: impl FnOnce(Caller) -> F,
) -> Result<T, CellError>
where
    T: Send + 'static,
    F: Future<Output = Result<T, CellError>> + Send + 'static,
{
    let (caller, _guard) = Caller::new();
    let done = tokio::spawn(work(caller)).await;
    done.unwrap_or(Err(CellError::Interrupted { cell }))
}

impl Inner {
    /// Locks the map of cells. Never held over I/O.
    fn cells(&self) -> MutexGuard<'_, BTreeMap<CellName, Arc<Cell>>> {
        lock(&self.cells)
    }

    /// Finds a cell that is ready.
    fn find(&self, name: &CellName) -> Result<Arc<Cell>, CellError> {
        let mut cells = self.cells();
        self.name_unnamed(&mut cells, name);
        let cell = cells.get(name).filter(|cell| cell.is_ready());
        let cell = cell.ok_or_else(|| CellError::NoSuchCell { cell: name.clone() })?;
        cell.check_readable()?;
        Ok(Arc::clone(cell))
    }

    /// Enters a cell with an unreadable record under the name by which it is called: a long name
    /// cannot be derived from its key.
    fn name_unnamed(&self, cells: &mut BTreeMap<CellName, Arc<Cell>>, name: &CellName) {
        let mut unnamed = lock(&self.unnamed);
        if unnamed.is_empty() || cells.contains_key(name) {
            return;
        }
        if let Some(reason) = unnamed.remove(&name.key()) {
            let cell = Cell::unreadable(name.clone(), reason, self.next_serial());
            cells.insert(name.clone(), Arc::new(cell));
        }
    }

    fn cgroups(&self) -> Result<&Cgroups, CellError> {
        if !rustix::process::geteuid().is_root() {
            return Err(CellError::NotRoot);
        }
        let not_mounted = |_: &CgroupError| CellError::Cgroup(CgroupError::NotMounted);
        self.cgroups.as_ref().map_err(not_mounted)
    }

    fn is_v2(&self) -> bool {
        self.cgroups
            .as_ref()
            .is_ok_and(|cgroups| cgroups.mode() == CgroupMode::V2)
    }

    fn next_serial(&self) -> u64 {
        self.serials.fetch_add(1, Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs blocking work on a thread for it.
async fn blocking<T: Send + 'static>(
    cell: &CellName,
    work: impl FnOnce() -> Result<T, CellError> + Send + 'static,
) -> Result<T, CellError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| Err(CellError::Interrupted { cell: cell.clone() }))
}
