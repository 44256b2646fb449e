//! Finding again what is there: cells of a daemon that stopped, was killed or was replaced, and
//! of a machine that was restarted.

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;

use rustix::process::{PidfdFlags, pidfd_open};

use super::cell::{Cell, Phase, Shim};
use super::notes::Notes;
use super::places::{remove_directory, remove_file, shim_group};
use super::{Inner, lock};
use crate::cgroup::CgroupError;
use crate::name::ExecutableName;
use crate::record::{self, CellRecord, ExecutableRecord, TEMPORARY};

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
    for entry in inner.places.cells.read_dir()? {
        let path = entry?.path();
        let record = match record::read::<CellRecord>(&path.join("cell.json")) {
            Ok(record) if inner.places.of_cell(&record.name) == path => record,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // Made by a daemon that died before there was a cell.
                remove_directory(&path)?;
                continue;
            }
            Ok(_) | Err(_) => {
                tracing::error!(path = %path.display(), "not the record of a cell; left alone");
                continue;
            }
        };
        let name = record.name.clone();
        let cell = Cell::new(record, inner.next_serial(), Phase::There);
        inner.cells().insert(name, Arc::new(cell));
    }
    adopt_notes(inner)?;
    // In the order of their names, so that what others are nested in comes first.
    let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
    for cell in cells {
        let Ok(groups) = inner.cgroups() else {
            return Ok(());
        };
        let (name, limits) = (cell.name().as_str(), &cell.record.spec.limits);
        let made = match groups.create(name, limits) {
            Err(CgroupError::Exists { .. }) => groups.limit(name, limits),
            Ok(()) => {
                tracing::info!(cell = name, "the control group of a cell is made anew");
                Ok(())
            }
            failed => failed,
        };
        if let Err(error) = made {
            tracing::error!(cell = name, %error, "a cell has no control group, or not its limits");
        }
    }
    Ok(())
}

/// What was told of cells that are still there; the rest is forgotten.
fn adopt_notes(inner: &Inner) -> io::Result<()> {
    let path = inner.places.told();
    let mut notes = Notes::read(&path);
    let cells = inner.cells();
    notes.retain(|note| {
        let cell = cells.get(&note.cell);
        cell.is_some_and(|cell| cell.record.allocated == note.allocated)
    });
    for note in &notes {
        if let Some(cell) = cells.get(&note.cell) {
            let mut state = cell.state();
            state.told.insert(note.executable.clone(), note.told);
        }
    }
    drop(cells);
    if notes.is_empty() {
        return remove_file(&path);
    }
    lock(&inner.notes).replace(&notes)
}

fn adopt_executables(inner: &Inner) -> io::Result<()> {
    for entry in inner.places.executables.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.ends_with(TEMPORARY) {
            // Perhaps being written this very moment by a shim: then it cannot be renamed, and
            // is tried again; or it was renamed just now.
            remove_file(&path)?;
            continue;
        }
        let record = match record::read::<ExecutableRecord>(&path) {
            Ok(record) => record,
            Err(error) => {
                tracing::error!(path = %path.display(), %error, "not a record; left alone");
                continue;
            }
        };
        let cell = inner.cells().get(&record.cell).cloned();
        match cell {
            Some(cell) => inner.take(&cell, record),
            // One that cannot be read: what belongs to it is left alone with it.
            None if inner.places.of_cell(&record.cell).exists() => {}
            // Its cell was being freed.
            None => remove_file(&path)?,
        }
    }
    Ok(())
}

/// Removes logs that belong to nothing: their cell is gone, or they were made for an executable
/// that never ran. Where a shim lives it may be about to run.
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
    for entry in inner.places.logs.read_dir()? {
        let entry = entry?;
        let name = entry.file_name();
        let Some((key, _)) = name.to_str().and_then(|name| name.split_once('_')) else {
            continue;
        };
        // What belongs to a cell whose record cannot be read is left alone with it.
        let unknown = !known.contains(key) && inner.places.cells.join(key).exists();
        let is_kept = keep.contains(name.to_str().unwrap_or_default());
        if !is_kept && !unknown && !starting.contains(key) {
            remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

fn adopt_processes(inner: &Inner, cell: &Cell) {
    let Ok(groups) = inner.cgroups() else {
        return;
    };
    let pids = groups
        .processes(&shim_group(cell.name()))
        .unwrap_or_default();
    let shim = pids.first().and_then(|pid| {
        let pidfd = pidfd_open(*pid, PidfdFlags::empty()).ok()?;
        Some(Shim { pid: *pid, pidfd })
    });
    match shim {
        Some(shim) => inner.adopt_shim(cell, shim),
        None => inner.bury_executables(cell),
    }
    let names: Vec<ExecutableName> = cell.state().executables.keys().cloned().collect();
    for name in names {
        inner.remove_group(cell, &name);
    }
}
