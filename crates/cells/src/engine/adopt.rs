//! Adoption at start: the cells of the previous daemon, and those of before a reboot.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use rustix::process::{PidfdFlags, pidfd_open};

use super::cell::{Cell, Phase, ShimProcess};
use super::cgroup_names::shim_cgroup;
use super::event_cursor::EventCursor;
use super::paths::{remove_directory, remove_file};
use super::{Inner, lock};
use crate::cgroup::CgroupError;
use crate::error_chain::chain;
use crate::name::ExecutableName;
use crate::record::{self, CellRecord, ExecutableRecord, TEMPORARY};

/// Reads all records, and takes over what runs.
pub(super) fn adopt(inner: &Inner) -> io::Result<()> {
    adopt_cells(inner)?;
    adopt_executables(inner)?;
    let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
    for cell in cells {
        adopt_processes(inner, &cell);
    }
    sweep_logs(inner)?;
    inner.remove_roots();
    Ok(())
}

fn adopt_cells(inner: &Inner) -> io::Result<()> {
    for entry in inner.paths.cells.read_dir()? {
        let path = entry?.path();
        let record = match record::read::<CellRecord>(&path.join("cell.json")) {
            Ok(record) if inner.paths.cell_directory(&record.name) == path => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Created by a daemon that died before it wrote the record.
                remove_directory(&path)?;
                continue;
            }
            Ok(_) | Err(_) => {
                tracing::error!(path = %path.display(), "unreadable cell record; left alone");
                continue;
            }
        };
        let name = record.name.clone();
        let cell = Cell::new(record, inner.next_serial(), Phase::Ready);
        inner.cells().insert(name, Arc::new(cell));
    }
    adopt_event_cursor(inner)?;
    // By name, so that a parent comes before those nested in it.
    let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
    for cell in cells {
        let Ok(cgroups) = inner.cgroups() else {
            return Ok(());
        };
        let (name, limits) = (cell.name().as_str(), &cell.record.spec.limits);
        let created = match cgroups.create(name, limits) {
            Err(CgroupError::Exists { .. }) => cgroups.set_limits(name, limits),
            Ok(()) => {
                tracing::info!(cell = name, "created the missing cgroup of a cell");
                Ok(())
            }
            failed => failed,
        };
        if let Err(error) = created {
            let error = chain(&error);
            tracing::error!(
                cell = name,
                error,
                "cannot create or limit the cgroup of a cell"
            );
        }
    }
    Ok(())
}

/// Loads the event cursor of the cells that still exist, and drops the rest.
fn adopt_event_cursor(inner: &Inner) -> io::Result<()> {
    let path = inner.paths.event_cursor();
    let mut entries = EventCursor::read(&path);
    let cells = inner.cells();
    entries.retain(|entry| {
        let cell = cells.get(&entry.cell);
        cell.is_some_and(|cell| cell.record.allocated == entry.allocated)
    });
    for entry in &entries {
        if let Some(cell) = cells.get(&entry.cell) {
            let mut state = cell.state();
            state
                .published
                .insert(entry.executable.clone(), entry.published);
        }
    }
    drop(cells);
    if entries.is_empty() {
        return remove_file(&path);
    }
    lock(&inner.event_cursor).replace(&entries)
}

fn adopt_executables(inner: &Inner) -> io::Result<()> {
    for entry in inner.paths.executables.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(TEMPORARY) {
            // If a shim is writing it at this moment, its rename fails and it writes again.
            remove_file(&path)?;
            continue;
        }
        let record = match record::read::<ExecutableRecord>(&path) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "unreadable executable record; left alone");
                continue;
            }
        };
        let cell = inner.cells().get(&record.cell).cloned();
        match cell {
            Some(cell) => inner.apply_record(&cell, record),
            // The cell record is unreadable: its executables stay with it.
            None if inner.paths.cell_directory(&record.cell).exists() => {}
            // Its cell was being freed.
            None => remove_file(&path)?,
        }
    }
    Ok(())
}

/// Removes orphaned logs: their cell is gone, or their executable never ran. Where a shim runs, the
/// executable may be about to start.
fn sweep_logs(inner: &Inner) -> io::Result<()> {
    let mut keep = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut starting = BTreeSet::new();
    for (name, cell) in inner.cells().iter() {
        let state = cell.state();
        keep.extend(
            state
                .executables
                .keys()
                .map(|executable| executable.key(name)),
        );
        known.insert(name.key());
        starting.extend(state.shim.is_some().then(|| name.key()));
    }
    for entry in inner.paths.logs.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((key, _)) = name.to_str().and_then(|name| name.split_once('_')) else {
            continue;
        };
        // Logs of a cell with an unreadable record stay with it.
        let unknown = !known.contains(key) && inner.paths.cells.join(key).exists();
        let is_kept = keep.contains(name.to_str().unwrap_or_default());
        if !is_kept && !unknown && !starting.contains(key) {
            remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

fn adopt_processes(inner: &Inner, cell: &Cell) {
    let Ok(cgroups) = inner.cgroups() else {
        return;
    };
    let pids = cgroups
        .processes(&shim_cgroup(cell.name()))
        .unwrap_or_default();
    let shim = pids.first().and_then(|pid| {
        let pidfd = pidfd_open(*pid, PidfdFlags::empty()).ok()?;
        Some(ShimProcess { pid: *pid, pidfd })
    });
    match shim {
        Some(shim) => inner.watch_shim(cell, shim),
        None => inner.mark_lost(cell),
    }
    let names: Vec<ExecutableName> = cell.state().executables.keys().cloned().collect();
    for name in names {
        inner.remove_executable_cgroup(cell, &name);
    }
}
