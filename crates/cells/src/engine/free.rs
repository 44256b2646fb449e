//! Ending a cell and everything nested in it, to the last file.

use std::sync::Arc;

use tokio::time::timeout;

use super::cell::{Cell, Phase};
use super::error::CellError;
use super::places::{SHIM_GROUPS, shim_group};
use super::stop::LONGEST_END;
use super::{CellEvent, Inner, blocking, lock};
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
    let name = cell.name();
    let order = Arc::clone(&cell.order).lock_owned().await;
    if cell.state().phase == Phase::Gone {
        return Ok(());
    }
    let groups = on_cell(inner, cell, kill).await?;
    let pidfd = cell.state().shim.take().map(|shim| shim.pidfd);
    if let Some(pidfd) = pidfd {
        let waited = timeout(LONGEST_END, sys::until_ended(pidfd)).await;
        waited.map(drop).map_err(|_| CellError::Unkillable {
            cell: name.clone(),
            what: "the first process".to_owned(),
        })?;
    }
    // Nothing is left with the first process, unless the cell shares the host's.
    let occupied = on_cell(inner, cell, move |inner, cell| {
        let occupied = occupied(inner, groups)?;
        if occupied.is_empty() {
            remove(inner, cell)?;
        }
        Ok(occupied)
    });
    let occupied = occupied.await?;
    if !occupied.is_empty() {
        for group in occupied {
            inner.until_gone(name, &group, "a process").await?;
        }
        on_cell(inner, cell, remove).await?;
    }
    drop(order);
    Ok(())
}

/// Runs a step that blocks.
async fn on_cell<T: Send + 'static>(
    inner: &Arc<Inner>,
    cell: &Arc<Cell>,
    step: impl FnOnce(&Inner, &Cell) -> Result<T, CellError> + Send + 'static,
) -> Result<T, CellError> {
    let (inner, its) = (Arc::clone(inner), Arc::clone(cell));
    blocking(cell.name(), move || step(&inner, &its)).await
}

/// Ends everything in the cell, and tells where it was. With the first process of its namespace
/// everything ends; what shares the host's processes is found by its group.
fn kill(inner: &Inner, cell: &Cell) -> Result<Vec<String>, CellError> {
    let (name, shim) = (cell.name().as_str(), shim_group(cell.name()));
    let groups = inner.cgroups()?;
    groups.kill(&shim).map_err(CellError::Cgroup)?;
    groups.kill(name).map_err(CellError::Cgroup)?;
    let mut all = groups.inside(name);
    all.push(shim);
    Ok(all)
}

fn occupied(inner: &Inner, groups: Vec<String>) -> Result<Vec<String>, CellError> {
    let mut occupied = Vec::new();
    for group in groups {
        let processes = inner.cgroups()?.processes(&group);
        if !processes.map_err(CellError::Cgroup)?.is_empty() {
            occupied.push(group);
        }
    }
    Ok(occupied)
}

/// The record of the cell goes last: until then a daemon that dies finds it again.
fn remove(inner: &Inner, cell: &Cell) -> Result<(), CellError> {
    let name = cell.name();
    let groups = inner.cgroups()?;
    for group in groups.inside(name.as_str()) {
        groups.remove_members(&group).map_err(CellError::Cgroup)?;
    }
    groups.remove(name.as_str()).map_err(CellError::Cgroup)?;
    groups
        .remove_members(&shim_group(name))
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
    inner.places.remove(name).map_err(failed)?;
    inner.forget(cell);
    Ok(())
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

    /// What is there for all cells goes with the last: the groups that hold all others, and the
    /// notes.
    pub(super) fn remove_roots(&self) {
        // Held to the end: a new cell would need them.
        let cells = self.cells();
        if let (true, Ok(groups)) = (cells.is_empty(), self.cgroups()) {
            let _ = groups.remove_members(SHIM_GROUPS);
            let _ = groups.remove("");
            lock(&self.notes).clear();
        }
    }
}
