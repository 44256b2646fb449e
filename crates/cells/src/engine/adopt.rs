//! Adoption at start: the cells of the previous daemon, and those of before a reboot.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::sync::Arc;

use mainstay_error_chain::chain;
use mainstay_records::{RecordError, is_temporary};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::cell::{Cell, Phase, ShimProcess};
use super::cgroup_names::{SHIMS, shim_cgroup};
use super::event_cursor::EventCursor;
use super::paths::{remove_directory, remove_file};
use super::publisher::PublisherThread;
use super::{Inner, lock};
use crate::cgroup::CgroupError;
use crate::name::{CellName, ExecutableName};
use crate::record;
use crate::shim::INIT_NAME;

/// Reads all records, and takes over what runs.
pub(super) fn adopt(inner: &Inner, mut publisher: PublisherThread) -> io::Result<()> {
    adopt_cells(inner, &mut publisher)?;
    publisher.start()?;
    adopt_executables(inner)?;
    let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
    for cell in cells {
        adopt_processes(inner, &cell);
    }
    sweep_logs(inner)?;
    inner.remove_roots();
    // A node that is ready has published the exits that it missed.
    inner.publisher.flush();
    Ok(())
}

fn adopt_cells(inner: &Inner, publisher: &mut PublisherThread) -> io::Result<()> {
    let owners = owners_of_records(inner)?;
    for entry in inner.paths.cells.read_dir()? {
        adopt_cell(inner, &entry?.path(), &owners)?;
    }
    adopt_missing(inner, &owners);
    adopt_event_cursor(inner, publisher)?;
    // By name, so that a parent comes before those nested in it.
    let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
    for cell in cells {
        let Ok(cgroups) = inner.cgroups() else {
            return Ok(());
        };
        if cell.unreadable.is_some() {
            continue;
        }
        let (name, spec) = (cell.name().as_str(), &cell.record.spec);
        let created = match inner.create_cell_cgroup(cgroups, name, spec) {
            Err(CgroupError::Exists { .. }) => cgroups.set_limits(name, &spec.limits),
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

/// Reads the record in a directory of a cell. An unreadable one is kept with its reason, so that
/// the cell is listed and can be freed.
fn adopt_cell(inner: &Inner, path: &Path, owners: &BTreeSet<String>) -> io::Result<()> {
    let key = path.file_name().unwrap_or_default().to_string_lossy();
    let reason = match record::read_cell(&path.join("cell.json")) {
        Ok(record) if inner.paths.cell_directory(&record.name) == path => {
            let name = record.name.clone();
            let cell = Cell::new(record, inner.next_serial(), Phase::Ready);
            inner.cells().insert(name, Arc::new(cell));
            return Ok(());
        }
        Ok(record) => format!("it is the record of cell {}", record.name),
        // Created by a daemon that died before it wrote the record, or removed by a Free that was
        // interrupted: neither leaves anything else.
        Err(RecordError::NotFound { .. })
            if !owners.contains(&*key) && !has_processes(inner, &key) =>
        {
            return remove_directory(path);
        }
        Err(error) => chain(&error),
    };
    add_unreadable(inner, &key, reason);
    Ok(())
}

/// Adds a cell of which only the key is known.
fn add_unreadable(inner: &Inner, key: &str, reason: String) {
    tracing::error!(
        cell = key,
        error = reason,
        "unreadable cell record; free the cell to remove it"
    );
    match CellName::from_key(key) {
        Some(name) => {
            let cell = Cell::unreadable(name.clone(), reason, inner.next_serial());
            inner.cells().insert(name, Arc::new(cell));
        }
        None => {
            lock(&inner.unnamed).insert(key.to_owned(), reason);
        }
    }
}

/// Adds the cells whose whole directory is missing, but which have records of executables or
/// processes. A Free removes both before the directory.
fn adopt_missing(inner: &Inner, owners: &BTreeSet<String>) {
    let is_known = |key: &str| {
        inner.paths.cells.join(key).exists()
            || inner.cells().values().any(|cell| cell.name().key() == key)
    };
    let shims = inner.cgroups().map(|cgroups| cgroups.children(SHIMS));
    let shims = shims.unwrap_or_default();
    let shims = shims.iter().filter_map(|cgroup| cgroup.rsplit('/').next());
    let shims = shims
        .filter(|key| has_processes(inner, key))
        .map(str::to_owned);
    let missing: BTreeSet<String> = owners.iter().cloned().chain(shims).collect();
    for key in missing.iter().filter(|key| !is_known(key)) {
        let reason = format!(
            "its record {} is missing",
            inner.paths.cells.join(key).display()
        );
        add_unreadable(inner, key, reason);
    }
}

/// The keys of the cells of all executable records.
fn owners_of_records(inner: &Inner) -> io::Result<BTreeSet<String>> {
    let mut owners = BTreeSet::new();
    for entry in inner.paths.executables.read_dir()? {
        let name = entry?.file_name();
        if let Some((key, _)) = record_key(&name) {
            owners.insert(key.to_owned());
        }
    }
    Ok(owners)
}

/// The keys of cell and executable in the file name of a record.
fn record_key(name: &OsStr) -> Option<(&str, &str)> {
    if is_temporary(name) {
        return None;
    }
    name.to_str()?.strip_suffix(".json")?.split_once('_')
}

/// Returns whether the shim of a cell, or its PID 1, is running.
fn has_processes(inner: &Inner, key: &str) -> bool {
    inner.cgroups().is_ok_and(|cgroups| {
        let pids = cgroups.processes(&format!("{SHIMS}/{key}"));
        pids.is_ok_and(|pids| !pids.is_empty())
    })
}

/// Loads the event cursor of the cells that still exist, and drops the rest.
fn adopt_event_cursor(inner: &Inner, publisher: &mut PublisherThread) -> io::Result<()> {
    let path = inner.paths.event_cursor();
    let mut entries = EventCursor::read(&path);
    let cells = inner.cells();
    entries.retain(|entry| {
        let cell = cells.get(&entry.cell);
        // Of an unreadable cell all stay: its record may be repaired.
        cell.is_some_and(|cell| {
            cell.unreadable.is_some() || cell.record.allocated == entry.allocated
        })
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
    // Without room on the disk the longer file stays: stale entries are ignored.
    if let Err(error) = publisher.replace_cursor(&entries) {
        tracing::warn!(%error, "cannot compact the event cursor");
    }
    Ok(())
}

fn adopt_executables(inner: &Inner) -> io::Result<()> {
    for entry in inner.paths.executables.read_dir()? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if is_temporary(name) {
            // If a shim is writing it at this moment, its rename fails and it writes again.
            remove_file(&path)?;
            continue;
        }
        let record = match record::read_executable(&path) {
            Ok(record) => record,
            Err(error) => {
                let error = chain(&error);
                tracing::error!(
                    path = %path.display(), error,
                    "unreadable executable record; freeing its cell removes it"
                );
                note_unknown(
                    inner,
                    name.to_str().and_then(|name| name.strip_suffix(".json")),
                );
                add_unreadable_executable(inner, name, error);
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

/// Lists an executable by the name of its record. It can be started again; its output is kept.
fn add_unreadable_executable(inner: &Inner, file: &OsStr, reason: String) {
    let Some((key, name)) = record_key(file) else {
        return;
    };
    let cells = inner.cells();
    let cell = cells.values().find(|cell| cell.name().key() == key);
    if let (Some(cell), Ok(name)) = (cell, name.parse()) {
        cell.state().unreadable_executables.insert(name, reason);
    }
}

/// Removes orphaned logs: their cell is gone, or their executable never ran. Where a shim runs, the
/// executable may be about to start.
fn sweep_logs(inner: &Inner) -> io::Result<()> {
    let mut keep = BTreeSet::new();
    let mut known = BTreeSet::new();
    let mut starting = BTreeSet::new();
    for (name, cell) in inner.cells().iter() {
        let state = cell.state();
        let executables = state.executables.keys();
        keep.extend(
            executables
                .chain(state.unreadable_executables.keys())
                .map(|executable| executable.key(name)),
        );
        known.insert(name.key());
        // Logs of an unreadable cell stay: its record may be repaired.
        let keeps_all = state.shim.is_some() || cell.unreadable.is_some();
        starting.extend(keeps_all.then(|| name.key()));
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
        if !is_kept && starting.contains(key) {
            note_unknown(inner, name.to_str());
        }
        if !is_kept && !unknown && !starting.contains(key) {
            remove_directory(&entry.path())?;
        }
    }
    Ok(())
}

/// Notes files of an executable that is not known for the Free of its cell, by their key.
fn note_unknown(inner: &Inner, key: Option<&str>) {
    let Some((cell, executable)) = key.and_then(|key| key.split_once('_')) else {
        return;
    };
    let Ok(executable) = executable.parse::<ExecutableName>() else {
        return;
    };
    let cells: Vec<Arc<Cell>> = inner.cells().values().cloned().collect();
    if let Some(cell) = cells.iter().find(|known| known.name().key() == cell) {
        cell.state().unknown_files.insert(executable);
    }
}

fn adopt_processes(inner: &Inner, cell: &Arc<Cell>) {
    let Ok(cgroups) = inner.cgroups() else {
        return;
    };
    let pids = cgroups
        .processes(&shim_cgroup(cell.name()))
        .unwrap_or_default();
    let shim = pids.iter().find(|pid| !is_init(**pid)).and_then(|pid| {
        let pidfd = pidfd_open(*pid, PidfdFlags::empty()).ok()?;
        let own = false;
        Some(ShimProcess {
            pid: *pid,
            pidfd,
            own,
        })
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

/// Returns whether a process is PID 1 of a cell's PID namespace: the child of a shim, in the same
/// cgroup. Shims of earlier builds were PID 1 themselves, under another name.
pub(super) fn is_init(pid: Pid) -> bool {
    let name = std::fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero()));
    name.is_ok_and(|name| name.trim_end().as_bytes() == INIT_NAME.to_bytes())
}
