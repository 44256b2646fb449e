//! One cell as the daemon knows it.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::sync::Notify;

use super::error::CellError;
use crate::name::{CellName, ExecutableName};
use crate::record::{CellRecord, ExecutableRecord, Run};
use crate::spec::{CellSpec, Namespace};

#[derive(Debug)]
pub(super) struct Cell {
    /// Only the name is known of a cell with an unreadable record.
    pub(super) record: CellRecord,
    /// Why the record is unreadable. Such a cell is listed and can be freed, nothing else.
    pub(super) unreadable: Option<String>,
    /// Distinguishes the cell from an earlier one of that name.
    pub(super) serial: u64,
    /// Held by the call that allocates, starts something in, or frees the cell.
    pub(super) order: Arc<tokio::sync::Mutex<()>>,
    /// Held over each write or removal of an executable record by the daemon: none is written when
    /// a Free has just removed it. The one lock of a cell that is held over disk I/O; no other lock
    /// is taken by a thread that waits for it.
    pub(super) files: Mutex<()>,
    state: Mutex<State>,
    /// Notified after every change of the state that a caller may wait for.
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) shim: Option<ShimProcess>,
    /// Shared: a reader takes them along instead of copying them under the lock.
    pub(super) executables: BTreeMap<ExecutableName, Arc<ExecutableRecord>>,
    /// Why the records of other executables are unreadable. Their output is kept.
    pub(super) unreadable_executables: BTreeMap<ExecutableName, String>,
    /// How far the events of each executable have been published.
    pub(super) published: BTreeMap<ExecutableName, Published>,
    /// Executables whose events are queued for the publisher.
    pub(super) queued_events: BTreeSet<ExecutableName>,
    /// Executables that have ended, whose cgroups are still to be removed.
    pub(super) stale_cgroups: Vec<ExecutableName>,
    /// Names in record files and logs whose executables are not known: half begun, or with an
    /// unreadable record. They are removed with the cell.
    pub(super) unknown_files: BTreeSet<ExecutableName>,
    /// The records are being removed: none is applied any more.
    pub(super) closed: bool,
    /// The executable that is being started.
    pub(super) starting: Option<ExecutableName>,
    /// The executables that are being stopped, each with the number of callers.
    pub(super) stopping: BTreeMap<ExecutableName, usize>,
}

impl State {
    /// A run of an executable, by its start time.
    fn run(&self, executable: &ExecutableName, started: i64) -> Option<Run> {
        let runs = self.executables.get(executable)?.all_runs();
        runs.into_iter().find(|run| run.started == started).copied()
    }

    /// Returns whether a Free owns the files of the cell: no other call may write any.
    pub(super) fn is_being_freed(&self) -> bool {
        matches!(self.phase, Phase::Freeing | Phase::Gone)
    }
}

/// The life of a cell. Only a cell in `Ready` is visible to new calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Allocating,
    Ready,
    Freeing,
    Gone,
}

/// The running shim of a cell.
#[derive(Debug)]
pub(super) struct ShimProcess {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
    /// Forked by this daemon, not by an earlier one, which may have been of another build.
    pub(super) own: bool,
}

/// The last published event of an executable: the start of a run, or its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Published {
    pub(super) runs: u64,
    pub(super) ended: bool,
}

impl Cell {
    pub(super) fn new(record: CellRecord, serial: u64, phase: Phase) -> Self {
        Self {
            record,
            unreadable: None,
            serial,
            order: Arc::default(),
            files: Mutex::default(),
            state: Mutex::new(State {
                phase,
                shim: None,
                executables: BTreeMap::new(),
                unreadable_executables: BTreeMap::new(),
                published: BTreeMap::new(),
                queued_events: BTreeSet::new(),
                stale_cgroups: Vec::new(),
                unknown_files: BTreeSet::new(),
                closed: false,
                starting: None,
                stopping: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    /// A cell whose record is unreadable.
    pub(super) fn unreadable(name: CellName, reason: String, serial: u64) -> Self {
        let record = CellRecord {
            name,
            spec: CellSpec::default(),
            allocated: 0,
        };
        Self {
            unreadable: Some(reason),
            ..Self::new(record, serial, Phase::Ready)
        }
    }

    pub(super) fn name(&self) -> &CellName {
        &self.record.name
    }

    /// Locks the state. Never held over I/O.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shares(&self, namespace: Namespace) -> bool {
        self.record.spec.share.contains(&namespace)
    }

    /// Fails if the record is unreadable.
    pub(super) fn check_readable(&self) -> Result<(), CellError> {
        match &self.unreadable {
            None => Ok(()),
            Some(reason) => Err(CellError::Unreadable {
                cell: self.name().clone(),
                reason: reason.clone(),
            }),
        }
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state().phase == Phase::Ready
    }

    /// Waits until a run of an executable, identified by its start time, has ended; `None` if the
    /// run is not known any more.
    pub(super) async fn until_ended(
        &self,
        executable: &ExecutableName,
        started: i64,
    ) -> Option<Run> {
        let ended = |state: &mut State| match state.run(executable, started) {
            Some(run) if run.is_running() => None,
            run => Some(run),
        };
        self.wait_for(ended).await
    }

    /// Waits until the cell is ready or gone.
    pub(super) async fn until_settled(&self) {
        let settled =
            |state: &mut State| matches!(state.phase, Phase::Ready | Phase::Gone).then_some(());
        self.wait_for(settled).await;
    }

    /// Waits until `ready` returns a value.
    pub(super) async fn wait_for<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
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
