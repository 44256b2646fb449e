//! Free: kills everything in a cell and in those nested in it, and removes their cgroups and files.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError, RwLockReadGuard};
use std::time::Duration;

use mainstay_journal::Timestamp;
use rustix::process::{Signal, pidfd_send_signal};

use super::adopt::is_init;
use super::caller::Caller;
use super::cell::{Cell, Phase};
use super::cgroup_names::{SHIMS, shim_cgroup};
use super::error::CellError;
use super::shim_exit::wait_for_exit;
use super::stop::KILL_TIMEOUT;
use super::{Inner, blocking, lock, shim_call};
use crate::name::{CellName, ExecutableName};
use crate::record::{ExitStatus, RunEnd};
use crate::spec::Namespace;

/// How long a shim may take to reap its executables and to record their exits, before it is killed.
const SHIM_EXIT_TIMEOUT: Duration = Duration::from_secs(5);

pub(super) async fn free(
    inner: Arc<Inner>,
    mut caller: Caller,
    name: CellName,
) -> Result<(), CellError> {
    let cells = claim(&inner, &name)?;
    let mut done = Ok(());
    // The innermost first: a cgroup with children cannot be removed.
    for cell in cells.iter().rev() {
        done = dismantle(&inner, &caller, cell).await;
        if done.is_err() {
            break;
        }
        // A cell is gone: those around it follow, whether or not the caller waits.
        caller = Caller::committed();
    }
    if done.is_err() {
        let _ = blocking(&name, move || {
            for cell in &cells {
                inner.restore(cell);
            }
            inner.remove_roots();
            Ok(())
        })
        .await;
    }
    done
}

/// Hides the cell and those nested in it from new calls.
fn claim(inner: &Inner, name: &CellName) -> Result<Vec<Arc<Cell>>, CellError> {
    let mut cells = inner.cells();
    inner.name_unnamed(&mut cells, name);
    let ready = cells.get(name).filter(|cell| cell.is_ready());
    let ready = ready.ok_or_else(|| CellError::NoSuchCell { cell: name.clone() })?;
    let mut claimed = vec![Arc::clone(ready)];
    let nested = cells.iter().filter(|(other, _)| other.is_inside(name));
    claimed.extend(nested.map(|(_, cell)| Arc::clone(cell)));
    for cell in &claimed {
        let mut state = cell.state();
        if matches!(state.phase, Phase::Allocating | Phase::Ready) {
            state.phase = Phase::Freeing;
        }
    }
    Ok(claimed)
}

async fn dismantle(inner: &Arc<Inner>, caller: &Caller, cell: &Arc<Cell>) -> Result<(), CellError> {
    let name = cell.name();
    // Waited for even if the caller is gone: a cell that is being started cannot be restored.
    let order = Arc::clone(&cell.order).lock_owned().await;
    caller.check(name)?;
    if cell.state().phase == Phase::Gone {
        return Ok(());
    }
    // In one go: between two threads each step would wait for the scheduler.
    let ended = on_cell(inner, cell, |inner, cell| {
        let cgroups = end_processes(inner, cell)?;
        // Without PID 1 the namespace is empty; a cell that shares the host's may have more.
        let populated = populated(inner, cgroups)?;
        match populated.is_empty() {
            true => Ok((populated, remove(inner, cell)?)),
            false => Ok((populated, Vec::new())),
        }
    });
    let (populated, mut removed) = ended.await?;
    if !populated.is_empty() {
        for cgroup in populated {
            inner.until_killed(name, &cgroup, "a process").await?;
        }
        removed = on_cell(inner, cell, remove).await?;
    }
    drop(order);
    // Waits for the disk, which the caller need not.
    tokio::task::spawn_blocking(move || drop(removed));
    Ok(())
}

/// Kills everything in the cell and waits until its shim has exited. Returns the cgroups that held
/// its processes.
fn end_processes(inner: &Inner, cell: &Arc<Cell>) -> Result<Vec<String>, CellError> {
    let name = cell.name();
    if cell.shares(Namespace::Pid) {
        reap(inner, cell)?;
    } else if !is_idle(inner, cell)?
        && let Some(init) = kill_inside(inner, cell)?
    {
        // The kernel waits with its exit until the shim has reaped all others. Without the shim they
        // would be zombies of PID 1 of the machine.
        wait_for_exit(&init, SHIM_EXIT_TIMEOUT);
        // It records the exits, and exits after PID 1 unless its disk is full.
        let shim = cell
            .state()
            .shim
            .as_ref()
            .map(|shim| shim.pidfd.try_clone());
        if let Some(Ok(shim)) = shim {
            wait_for_exit(&shim, SHIM_EXIT_TIMEOUT);
        }
    }
    // Before they are killed: a process leaves its cgroup a moment before it has exited.
    let shim_and_init = inner.cgroups()?.pidfds(&shim_cgroup(name));
    let shim_and_init = shim_and_init.map_err(CellError::Cgroup)?;
    let cgroups = kill(inner, cell)?;
    let pidfd = cell.state().shim.take().map(|shim| shim.pidfd);
    match pidfd {
        Some(pidfd) if !wait_for_exit(&pidfd, KILL_TIMEOUT) => {
            return Err(CellError::Unkillable {
                cell: name.clone(),
                process: "the shim".to_owned(),
            });
        }
        _ => {}
    }
    for (_, pidfd) in shim_and_init {
        wait_for_exit(&pidfd, KILL_TIMEOUT);
    }
    Ok(cgroups)
}

/// Returns whether nothing is left in the cell that its shim has to reap or to record: then both can
/// be killed at once.
pub(super) fn is_idle(inner: &Inner, cell: &Arc<Cell>) -> Result<bool, CellError> {
    let is_running = {
        let state = cell.state();
        let mut records = state.executables.values();
        // An executable that is not known was being started when the daemon exited.
        !state.unknown_files.is_empty() || records.any(|record| record.run.is_running())
    };
    if is_running || cell.unreadable.is_some() {
        return Ok(false);
    }
    let cgroups = inner.cgroups()?.children(cell.name().as_str());
    Ok(populated(inner, cgroups)?.is_empty())
}

/// Runs a step on a blocking thread.
async fn on_cell<T: Send + 'static>(
    inner: &Arc<Inner>,
    cell: &Arc<Cell>,
    step: impl FnOnce(&Inner, &Arc<Cell>) -> Result<T, CellError> + Send + 'static,
) -> Result<T, CellError> {
    let (inner, its) = (Arc::clone(inner), Arc::clone(cell));
    blocking(cell.name(), move || step(&inner, &its)).await
}

/// Kills the executables of a cell that shares the host's PID namespace while its shim runs, which
/// reaps them. Killed together with it, they would become zombies of the host's init process.
fn reap(inner: &Inner, cell: &Arc<Cell>) -> Result<(), CellError> {
    if cell.state().shim.is_none() {
        return Ok(());
    }
    let name = cell.name();
    inner
        .cgroups()?
        .kill(name.as_str())
        .map_err(CellError::Cgroup)?;
    if let Err(error) = shim_call::reap(&inner.paths, name) {
        // Of an earlier build, or stuck: it is killed next, and its children are left to init.
        tracing::debug!(cell = %name, %error, "the shim of a cell cannot reap its executables");
    }
    Ok(())
}

/// Kills everything in the cell, and returns the cgroups it was in. The exit of PID 1 ends the
/// whole PID namespace; processes that share the host's are found by their cgroup.
fn kill(inner: &Inner, cell: &Arc<Cell>) -> Result<Vec<String>, CellError> {
    let (name, shim) = (cell.name().as_str(), shim_cgroup(cell.name()));
    let cgroups = inner.cgroups()?;
    cgroups.kill(&shim).map_err(CellError::Cgroup)?;
    cgroups.kill(name).map_err(CellError::Cgroup)?;
    let mut all = cgroups.children(name);
    all.push(shim);
    Ok(all)
}

/// Kills the executables and PID 1 of the cell's PID namespace, and returns the pidfd of the latter.
fn kill_inside(inner: &Inner, cell: &Arc<Cell>) -> Result<Option<OwnedFd>, CellError> {
    let cgroups = inner.cgroups()?;
    let shim = cgroups.pidfds(&shim_cgroup(cell.name()));
    let shim = shim.map_err(CellError::Cgroup)?;
    let Some((_, init)) = shim.into_iter().find(|(pid, _)| is_init(*pid)) else {
        return Ok(None);
    };
    let name = cell.name().as_str();
    cgroups.kill(name).map_err(CellError::Cgroup)?;
    // Fails if it has exited since.
    let _ = pidfd_send_signal(&init, Signal::KILL);
    Ok(Some(init))
}

/// The cgroups that have processes left.
fn populated(inner: &Inner, cgroups: Vec<String>) -> Result<Vec<String>, CellError> {
    let mut populated = Vec::new();
    for cgroup in cgroups {
        let processes = inner.cgroups()?.processes(&cgroup);
        if !processes.map_err(CellError::Cgroup)?.is_empty() {
            populated.push(cgroup);
        }
    }
    Ok(populated)
}

/// Removes cgroups and files, and returns the removed records. The record of the cell goes last:
/// until then the next daemon finds it.
fn remove(inner: &Inner, cell: &Arc<Cell>) -> Result<Vec<OwnedFd>, CellError> {
    let name = cell.name();
    let cgroups = inner.cgroups()?;
    for cgroup in cgroups.children(name.as_str()) {
        cgroups
            .remove_membership(&cgroup)
            .map_err(CellError::Cgroup)?;
    }
    cgroups.remove(name.as_str()).map_err(CellError::Cgroup)?;
    cgroups
        .remove_membership(&shim_cgroup(name))
        .map_err(CellError::Cgroup)?;
    let names: Vec<ExecutableName> = cell.state().executables.keys().cloned().collect();
    for executable in &names {
        if cell.state().running(executable).is_some() {
            // It may have exited by itself just before.
            inner.read_record(cell, executable);
        }
    }
    publish_lost(inner, cell, &names);
    // A shim may have been killed while it started one that is not known.
    let mut with_files: BTreeSet<ExecutableName> = names.into_iter().collect();
    {
        let mut state = cell.state();
        state.closed = true;
        state.executables.clear();
        with_files.extend(state.unknown_files.iter().cloned());
    }
    let removed = {
        let _files = lock(&cell.files);
        remove_files(inner, cell, &with_files)
    };
    let removed = removed.map_err(|source| CellError::RecordIo {
        cell: name.clone(),
        source,
    })?;
    inner.forget(cell);
    inner.remove_roots();
    Ok(removed)
}

/// Removes the files of a cell and of these executables: the work of a Free does not grow with the
/// other cells.
fn remove_files(
    inner: &Inner,
    cell: &Cell,
    executables: &BTreeSet<ExecutableName>,
) -> io::Result<Vec<OwnedFd>> {
    /// Open ones at a time, of a cell with thousands.
    const MAX_OPEN: usize = 64;
    let name = cell.name();
    let mut removed = Vec::new();
    if cell.unreadable.is_some() {
        inner.paths.remove_executables_by_prefix(name)?;
    }
    for executable in executables {
        let record = inner.paths.remove_executable(name, executable)?;
        if removed.len() < MAX_OPEN {
            removed.extend(record);
        }
    }
    inner.paths.remove_cell(name)?;
    Ok(removed)
}

/// Publishes the end of executables that this Free has killed, and whatever was not published yet:
/// without the records the next daemon could not.
fn publish_lost(inner: &Inner, cell: &Arc<Cell>, names: &[ExecutableName]) {
    for name in names {
        let known = cell.state().executables.get(name).map(Arc::clone);
        let Some(running) = known.filter(|record| record.run.is_running()) else {
            continue;
        };
        let mut record = (*running).clone();
        record.run.end = Some(RunEnd {
            at: Timestamp::now().as_nanos(),
            status: ExitStatus::Lost,
        });
        inner.apply_record(cell, record);
    }
    inner.publisher.flush();
}

impl Inner {
    /// Drops a cell of which nothing is left.
    pub(super) fn forget(&self, cell: &Cell) {
        // From here on the name can be allocated again.
        self.cells().remove(cell.name());
        let mut state = cell.state();
        state.phase = Phase::Gone;
        state.executables.clear();
        drop(state);
        cell.changed.notify_waiters();
    }

    /// Makes a cell that could not be freed visible again, so that it can be freed again.
    fn restore(&self, cell: &Arc<Cell>) {
        let mut state = cell.state();
        if state.phase != Phase::Freeing {
            return;
        }
        state.phase = Phase::Ready;
        state.closed = false;
        let has_shim = state.shim.is_some();
        drop(state);
        if !has_shim {
            self.mark_lost(cell);
        }
        self.handle_shim_exit(cell);
        cell.changed.notify_waiters();
    }

    /// Keeps the root cgroups until it is dropped.
    pub(super) fn keep_cgroup_roots(&self) -> RwLockReadGuard<'_, ()> {
        let guard = self.cgroup_roots.read();
        guard.unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes the root cgroups and the event cursor with the last cell.
    pub(super) fn remove_roots(&self) {
        // A cell is in the map before its cgroups are created, which waits for this lock.
        let _roots = self
            .cgroup_roots
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let is_empty = self.cells().is_empty();
        if let (true, Ok(cgroups)) = (is_empty, self.cgroups()) {
            let _ = cgroups.remove_membership(SHIMS);
            let _ = cgroups.remove("");
            self.publisher.clear_cursor();
        }
    }
}
