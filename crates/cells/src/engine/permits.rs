//! Permits to start and stop an executable.
//!
//! An executable is not started while it is being stopped: the new run would be killed with the old
//! one. Nor is it stopped while it is being started: a child killed before its exec could not report
//! whether the exec would have succeeded.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::cell::{Cell, State};
use crate::name::ExecutableName;
use crate::record::Run;

/// The permit to start an executable. Until it is dropped that executable is not stopped, and no
/// other call allocates, starts or frees anything in the cell.
pub(super) struct StartPermit {
    cell: Arc<Cell>,
    _order: OwnedMutexGuard<()>,
}

/// The permit to stop an executable, shared with other stops. Until it is dropped the executable is
/// not started.
pub(super) struct StopPermit {
    cell: Arc<Cell>,
    executable: ExecutableName,
}

impl StartPermit {
    /// Waits for the permit; `None` if the executable is running.
    pub(super) async fn acquire(cell: &Arc<Cell>, executable: &ExecutableName) -> Option<Self> {
        let free = |state: &State| !state.stopping.contains_key(executable);
        loop {
            let may = |state: &mut State| {
                (free(state) || state.running(executable).is_some()).then_some(())
            };
            cell.wait_for(may).await;
            let order = Arc::clone(&cell.order).lock_owned().await;
            let mut state = cell.state();
            if free(&state) {
                state.starting = Some(executable.clone());
                let cell = Arc::clone(cell);
                return Some(Self {
                    cell,
                    _order: order,
                });
            }
            if state.running(executable).is_some() {
                return None;
            }
        }
    }
}

impl StopPermit {
    pub(super) async fn acquire(cell: &Arc<Cell>, executable: &ExecutableName) -> Self {
        let register = |state: &mut State| {
            if state.starting.as_ref() == Some(executable) {
                return None;
            }
            *state.stopping.entry(executable.clone()).or_default() += 1;
            Some(())
        };
        cell.wait_for(register).await;
        Self {
            cell: Arc::clone(cell),
            executable: executable.clone(),
        }
    }
}

impl Drop for StartPermit {
    fn drop(&mut self) {
        self.cell.state().starting = None;
        self.cell.changed.notify_waiters();
    }
}

impl Drop for StopPermit {
    fn drop(&mut self) {
        let mut state = self.cell.state();
        if let Some(others) = state.stopping.get_mut(&self.executable) {
            *others -= 1;
            if *others == 0 {
                state.stopping.remove(&self.executable);
            }
        }
        drop(state);
        self.cell.changed.notify_waiters();
    }
}

impl State {
    /// The current run of an executable, unless it has ended.
    pub(super) fn running(&self, executable: &ExecutableName) -> Option<Run> {
        let record = self.executables.get(executable)?;
        Some(record.run).filter(Run::is_running)
    }
}
