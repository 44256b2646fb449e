//! One cell as the daemon knows it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::process::Pid;
use tokio::sync::Notify;

use crate::name::{CellName, ExecutableName};
use crate::record::{CellRecord, ExecutableRecord, Run};
use crate::spec::Namespace;

#[derive(Debug)]
pub(super) struct Cell {
    pub(super) record: CellRecord,
    /// Tells one cell from an earlier one of the same name.
    pub(super) serial: u64,
    /// Whoever makes, starts something in, or frees the cell.
    pub(super) order: Arc<tokio::sync::Mutex<()>>,
    state: Mutex<State>,
    /// An executable has started or ended, or the cell is there, or there no more.
    pub(super) changed: Notify,
}

#[derive(Debug)]
pub(super) struct State {
    pub(super) phase: Phase,
    pub(super) shim: Option<Shim>,
    /// In boxes: a map keeps room for many in one piece, and most cells have one.
    pub(super) executables: BTreeMap<ExecutableName, Box<ExecutableRecord>>,
    /// What of its executables has been told as events.
    pub(super) told: BTreeMap<ExecutableName, Told>,
    /// Executables that have ended, whose groups could not be removed at once.
    pub(super) groups_left: Vec<ExecutableName>,
    /// Its records are being removed: none is taken over any more.
    pub(super) closed: bool,
    /// What is being started now.
    pub(super) starting: Option<ExecutableName>,
    /// What is being stopped now, and by how many at once.
    pub(super) stopping: BTreeMap<ExecutableName, usize>,
}

impl State {
    /// A run of an executable, by when it was started.
    fn run(&self, executable: &ExecutableName, started: i64) -> Option<Run> {
        let runs = self.executables.get(executable)?.all_runs();
        runs.into_iter().find(|run| run.started == started).copied()
    }

    /// Whoever frees the cell removes its files: nobody else may write any.
    pub(super) fn is_being_freed(&self) -> bool {
        matches!(self.phase, Phase::Freeing | Phase::Gone)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not there yet.
    Making,
    There,
    /// There no more for anybody who comes now.
    Freeing,
    Gone,
}

/// The first process of the cell.
#[derive(Debug)]
pub(super) struct Shim {
    pub(super) pid: Pid,
    pub(super) pidfd: OwnedFd,
}

/// How far the life of an executable has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(super) struct Told {
    pub(super) runs: u64,
    pub(super) ended: bool,
}

impl Cell {
    pub(super) fn new(record: CellRecord, serial: u64, phase: Phase) -> Self {
        Self {
            record,
            serial,
            order: Arc::default(),
            state: Mutex::new(State {
                phase,
                shim: None,
                executables: BTreeMap::new(),
                told: BTreeMap::new(),
                groups_left: Vec::new(),
                closed: false,
                starting: None,
                stopping: BTreeMap::new(),
            }),
            changed: Notify::new(),
        }
    }

    pub(super) fn name(&self) -> &CellName {
        &self.record.name
    }

    /// Held for moments only, never over anything that waits.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn shares(&self, namespace: Namespace) -> bool {
        self.record.spec.share.contains(&namespace)
    }

    pub(super) fn is_there(&self) -> bool {
        self.state().phase == Phase::There
    }

    /// Waits until a run of an executable, told by when it was started, has ended and it is known
    /// how; `None` if nothing is known of it any more.
    pub(super) async fn until_ended(
        &self,
        executable: &ExecutableName,
        started: i64,
    ) -> Option<Run> {
        let ended = |state: &mut State| match state.run(executable, started) {
            Some(run) if run.is_running() => None,
            run => Some(run),
        };
        self.when(ended).await
    }

    /// Waits until it is known whether the cell is there or not.
    pub(super) async fn until_settled(&self) {
        let settled =
            |state: &mut State| matches!(state.phase, Phase::There | Phase::Gone).then_some(());
        self.when(settled).await;
    }

    /// Waits until its state is as it is looked for.
    pub(super) async fn when<T>(&self, mut ready: impl FnMut(&mut State) -> Option<T>) -> T {
        loop {
            // Before looking, so that no change in between is missed.
            let changed = self.changed.notified();
            let found = ready(&mut self.state());
            match found {
                Some(found) => return found,
                None => changed.await,
            }
        }
    }
}
