//! Ending a cell and everything nested in it, to the last file.

use std::sync::Arc;

use tokio::time::timeout;

use super::cell::{Cell, Phase};
use super::error::CellError;
use super::places::{SHIM_GROUPS, shim_group};
use super::stop::LONGEST_END;
use super::{CellEvent, Inner, blocking};
use crate::name::{CellName, ExecutableName};
use crate::record::HowEnded;
use crate::sys;

pub(super) async fn free(inner: Arc<Inner>, name: CellName) -> Result<(), CellError> {
    let cells = claim(&inner, &name)?;
    let mut done = Ok(());
    // The innermost first: no group can go before those in it.
    for cell in cells.iter().rev() {
        done = dismantle(&inner, cell).await;
        if done.is_err() {
            break;
        }
    }
    let _ = blocking(&name, move || {
        for cell in &cells {
            inner.give_back(cell);
        }
        inner.remove_roots();
        Ok(())
    })
    .await;
    done
}

/// From here on nobody finds the cell or what is nested in it.
fn claim(inner: &Inner, name: &CellName) -> Result<Vec<Arc<Cell>>, CellError> {
    let cells = inner.cells();
    let there = cells.get(name).filter(|cell| cell.is_there());
    let there = there.ok_or_else(|| CellError::NoSuchCell { cell: name.clone() })?;
    let mut claimed = vec![Arc::clone(there)];
    let nested = cells.iter().filter(|(other, _)| other.is_inside(name));
    claimed.extend(nested.map(|(_, cell)| Arc::clone(cell)));
    for cell in &claimed {
        let mut state = cell.state();
        if matches!(state.phase, Phase::Making | Phase::There) {
            state.phase = Phase::Freeing;
        }
    }
    Ok(claimed)
}

async fn dismantle(inner: &Arc<Inner>, cell: &Arc<Cell>) -> Result<(), CellError> {
    let order = Arc::clone(&cell.order).lock_owned().await;
    if cell.state().phase == Phase::Gone {
        return Ok(());
    }
    end_processes(inner, cell).await?;
    let (inner, cell) = (Arc::clone(inner), Arc::clone(cell));
    let name = cell.name().clone();
    blocking(&name, move || {
        remove(&inner, &cell)?;
        inner.forget(&cell);
        drop(order);
        Ok(())
    })
    .await
}

async fn end_processes(inner: &Arc<Inner>, cell: &Arc<Cell>) -> Result<(), CellError> {
    let name = cell.name();
    let shim = shim_group(name);
    // With the first process of its namespace everything in the cell ends. What shares the host's
    // processes is found by its group.
    inner
        .with_groups(name, &shim, |groups, group| groups.kill(group))
        .await?;
    inner
        .with_groups(name, name.as_str(), |groups, group| groups.kill(group))
        .await?;
    let pidfd = cell.state().shim.take().map(|shim| shim.pidfd);
    if let Some(pidfd) = pidfd {
        let stuck = || CellError::Unkillable {
            cell: name.clone(),
            what: "the first process".to_owned(),
        };
        let waited = timeout(LONGEST_END, sys::until_ended(pidfd)).await;
        waited.map(drop).map_err(|_| stuck())?;
    }
    inner.until_gone(name, &shim, "the first process").await?;
    let groups = {
        let (inner, name) = (Arc::clone(inner), name.clone());
        blocking(cell.name(), move || {
            Ok(inner.cgroups()?.inside(name.as_str()))
        })
        .await?
    };
    for group in groups {
        inner.until_gone(name, &group, "a process").await?;
    }
    Ok(())
}

/// The record of the cell goes last: until then a daemon that dies finds it again.
fn remove(inner: &Inner, cell: &Cell) -> Result<(), CellError> {
    let name = cell.name();
    let groups = inner.cgroups()?;
    for group in groups.inside(name.as_str()) {
        groups.remove(&group).map_err(CellError::Cgroup)?;
    }
    groups.remove(name.as_str()).map_err(CellError::Cgroup)?;
    groups
        .remove(&shim_group(name))
        .map_err(CellError::Cgroup)?;
    let names: Vec<ExecutableName> = cell.state().executables.keys().cloned().collect();
    for executable in &names {
        // It may have ended by itself just before.
        inner.read_record(cell, executable);
    }
    let executables: Vec<_> = {
        let mut state = cell.state();
        state.closed = true;
        std::mem::take(&mut state.executables)
            .into_values()
            .collect()
    };
    let failed = |source| CellError::Records {
        cell: name.clone(),
        source,
    };
    for record in executables {
        if record.run.is_running() {
            inner.events.tell(CellEvent::Ended {
                cell: name.clone(),
                executable: record.name.clone(),
                run: record.run,
                how: HowEnded::Lost,
            });
        }
    }
    inner.places.remove(name).map_err(failed)
}

impl Inner {
    /// Nothing is left of the cell.
    pub(super) fn forget(&self, cell: &Cell) {
        // The next of that name can come from here on.
        self.cells().remove(cell.name());
        let mut state = cell.state();
        state.phase = Phase::Gone;
        state.executables.clear();
        drop(state);
        cell.changed.notify_waiters();
    }

    /// What could not be freed is there again, and can be freed again.
    fn give_back(&self, cell: &Cell) {
        let mut state = cell.state();
        if state.phase != Phase::Freeing {
            return;
        }
        state.phase = Phase::There;
        state.closed = false;
        let has_shim = state.shim.is_some();
        drop(state);
        if !has_shim {
            self.bury_executables(cell);
        }
        self.forget_dead_shim(cell);
        cell.changed.notify_waiters();
    }

    /// The groups that hold all others go with the last cell.
    pub(super) fn remove_roots(&self) {
        // Held to the end: a new cell would need them.
        let cells = self.cells();
        if let (true, Ok(groups)) = (cells.is_empty(), self.cgroups()) {
            let _ = groups.remove(SHIM_GROUPS);
            let _ = groups.remove("");
        }
    }
}
