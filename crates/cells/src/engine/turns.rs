//! Who may do what to an executable now. It is not started while it is being stopped: what has
//! just begun would be killed along with what is to end. Nor is it stopped while it is being
//! started: a program that is killed before it has taken over cannot say whether it could have.

use std::sync::Arc;

use tokio::sync::OwnedMutexGuard;

use super::cell::{Cell, State};
use crate::name::ExecutableName;
use crate::record::Run;

/// The right to start an executable. Until it is dropped nobody stops that executable, and nobody
/// else makes, starts or frees anything in the cell.
pub(super) struct StartTurn {
    cell: Arc<Cell>,
    _order: OwnedMutexGuard<()>,
}

/// The right to stop an executable, along with others who do. Until it is dropped nobody starts it.
pub(super) struct StopTurn {
    cell: Arc<Cell>,
    executable: ExecutableName,
}

impl StartTurn {
    /// `None` if the executable is running, and perhaps being stopped.
    pub(super) async fn take(cell: &Arc<Cell>, executable: &ExecutableName) -> Option<Self> {
        let free = |state: &State| !state.stopping.contains_key(executable);
        loop {
            let may = |state: &mut State| {
                (free(state) || state.running(executable).is_some()).then_some(())
            };
            cell.when(may).await;
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

impl StopTurn {
    pub(super) async fn take(cell: &Arc<Cell>, executable: &ExecutableName) -> Self {
        let take = |state: &mut State| {
            if state.starting.as_ref() == Some(executable) {
                return None;
            }
            *state.stopping.entry(executable.clone()).or_default() += 1;
            Some(())
        };
        cell.when(take).await;
        Self {
            cell: Arc::clone(cell),
            executable: executable.clone(),
        }
    }
}

impl Drop for StartTurn {
    fn drop(&mut self) {
        self.cell.state().starting = None;
        self.cell.changed.notify_waiters();
    }
}

impl Drop for StopTurn {
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
    /// The run of an executable that has not ended.
    pub(super) fn running(&self, executable: &ExecutableName) -> Option<Run> {
        let record = self.executables.get(executable)?;
        Some(record.run).filter(Run::is_running)
    }
}
