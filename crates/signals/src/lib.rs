//! Signals of processes, as the kernel traces them (tracefs, event `signal:signal_generate`).
//!
//! Each stream has a tracing instance of its own, so that neither other tracers of the machine nor
//! other streams disturb it. The kernel's binary buffers are read, not their text form, in which the
//! name of a process could forge an event. This crate knows neither gRPC nor cells: the caller says
//! which processes belong to a group.

mod format;
mod instance;
mod membership;
pub mod page;
mod stream;
mod tracefs;

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

pub use membership::Group;
pub use stream::{SignalStream, StreamError};
use tracefs::TraceFs;

/// Bounds the wait for the threads of streams when the daemon stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);

/// A signal that was sent to a process or thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signal {
    pub number: i32,
    /// PID in the initial PID namespace.
    pub pid: i32,
}

#[derive(Debug, thiserror::Error)]
pub enum SignalsError {
    /// This machine or this daemon cannot trace.
    #[error("signals cannot be traced here: {why}")]
    Unsupported {
        why: &'static str,
        source: Option<io::Error>,
    },
    #[error("cannot {action} of a tracing instance")]
    Instance { action: String, source: io::Error },
    #[error("the kernel's description of {0} is not understood")]
    Format(&'static str),
}

/// The tracing of signals by this daemon.
#[derive(Debug)]
pub struct Signals {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    /// The start of the names of instances of this state directory.
    prefix: String,
    state: Mutex<State>,
    /// Signalled when an instance is removed.
    removed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Whether instances that an earlier daemon left behind are removed.
    swept: bool,
    next: u64,
    running: usize,
}

/// Counts a stream until its instance is removed, and keeps the caller's permission for it.
struct Running {
    shared: Arc<Shared>,
    _permit: Box<dyn Send>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.lock().running -= 1;
        self.shared.removed.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Signals {
    /// `key` is unique among the daemons of this machine, and the same after a restart.
    pub fn new(key: &str) -> Self {
        Self {
            shared: Arc::new(Shared {
                prefix: format!("mainstay-{key}-"),
                state: Mutex::default(),
                removed: Condvar::new(),
            }),
        }
    }

    /// Removes instances that an earlier daemon has left behind. Blocks on the kernel.
    pub fn sweep(&self) {
        let mut state = self.shared.lock();
        if state.swept {
            return;
        }
        match TraceFs::open() {
            Ok(tracefs) => {
                state.swept = true;
                if let Err(error) = tracefs.remove_instances(&self.shared.prefix) {
                    warn!(%error, "cannot remove stale tracing instances");
                }
            }
            // Then there are none either; a stream says why.
            Err(_) => state.swept = true,
        }
    }

    /// Traces signals from now on: those to processes of a group, or all. Blocks on the kernel.
    /// `permit` is dropped when the instance is removed, which may be later than the stream.
    pub fn trace(
        &self,
        group: Option<Box<dyn Group>>,
        permit: Box<dyn Send>,
    ) -> Result<SignalStream, SignalsError> {
        self.sweep();
        check_namespace()?;
        let tracefs = Arc::new(TraceFs::open()?);
        let (name, running) = {
            let mut state = self.shared.lock();
            state.next += 1;
            state.running += 1;
            let name = format!(
                "{}{}-{}",
                self.shared.prefix,
                std::process::id(),
                state.next
            );
            let running = Running {
                shared: Arc::clone(&self.shared),
                _permit: permit,
            };
            (name, running)
        };
        SignalStream::start(&tracefs, &name, group, running)
    }

    /// Waits until the instances of all streams are removed; the streams must have been dropped.
    pub fn stop(&self) {
        let state = self.shared.lock();
        let waited = self
            .shared
            .removed
            .wait_timeout_while(state, STOP_TIMEOUT, |state| state.running > 0);
        if waited.is_ok_and(|(state, _)| state.running > 0) {
            warn!("tracing instances are left behind; the next start removes them");
        }
    }
}

/// The kernel traces PIDs of the initial PID namespace, whose inode number is fixed.
fn check_namespace() -> Result<(), SignalsError> {
    const INITIAL: &str = "pid:[4026531836]";
    let own = std::fs::read_link("/proc/self/ns/pid");
    if own.is_ok_and(|own| own == Path::new(INITIAL)) {
        return Ok(());
    }
    Err(SignalsError::Unsupported {
        why: "the daemon does not run in the initial PID namespace, whose PIDs the kernel traces",
        source: None,
    })
}
