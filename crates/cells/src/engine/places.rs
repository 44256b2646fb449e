//! Where everything of cells is: on disk and among the control groups.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::name::{CellName, ExecutableName};
use crate::record;

/// No label of a cell begins with it.
const OWN: &str = "_";
const SHIMS: &str = "_shims";
/// The socket of a cell's shim.
const CONTROL: &str = "control";

/// The directories of cells, all root's alone.
#[derive(Debug)]
pub(super) struct Places {
    root: PathBuf,
    /// A directory for each cell: its record and the socket of its shim.
    pub(super) cells: PathBuf,
    /// A record for each executable.
    pub(super) executables: PathBuf,
    /// A log for each executable.
    pub(super) logs: PathBuf,
    /// Always empty: what cells see instead of the daemon's state.
    pub(super) cover: PathBuf,
}

impl Places {
    pub(super) fn make(root: &Path) -> io::Result<Self> {
        let places = Self {
            root: root.to_owned(),
            cells: root.join("cells"),
            executables: root.join("executables"),
            logs: root.join("logs"),
            cover: root.join("cover"),
        };
        for path in [
            &places.cells,
            &places.executables,
            &places.logs,
            &places.cover,
        ] {
            make_directory(path)?;
        }
        Ok(places)
    }

    pub(super) fn of_cell(&self, cell: &CellName) -> PathBuf {
        self.cells.join(cell.key())
    }

    pub(super) fn record(&self, cell: &CellName) -> PathBuf {
        self.of_cell(cell).join("cell.json")
    }

    /// What has been told of all cells.
    pub(super) fn told(&self) -> PathBuf {
        self.root.join("told")
    }

    pub(super) fn executable(&self, cell: &CellName, name: &ExecutableName) -> PathBuf {
        self.executables.join(format!("{}.json", name.key(cell)))
    }

    /// The same, and what its writer leaves of it when it is killed in between.
    fn files_of(&self, cell: &CellName, name: &ExecutableName) -> [PathBuf; 2] {
        let record = self.executable(cell, name);
        [record::temporary(&record), record]
    }

    /// Removes the record and the log of an executable.
    pub(super) fn forget(&self, cell: &CellName, name: &ExecutableName) -> io::Result<()> {
        for file in self.files_of(cell, name) {
            remove_file(&file)?;
        }
        remove_directory(&self.logs.join(name.key(cell)))
    }

    /// Removes all that is there of a cell. Its record goes last: until then a daemon that dies
    /// finds it again.
    pub(super) fn remove(&self, cell: &CellName) -> io::Result<()> {
        let own = self.of_cell(cell);
        // Without a shim nothing else was ever made for it.
        if own.join(CONTROL).exists() {
            // Not by the executables that are known: a shim may have been killed when it had only
            // begun with one.
            let prefix = format!("{}_", cell.key());
            for directory in [&self.executables, &self.logs] {
                for entry in directory.read_dir()? {
                    let entry = entry?;
                    let name = entry.file_name();
                    if !name.as_encoded_bytes().starts_with(prefix.as_bytes()) {
                        continue;
                    }
                    if entry.file_type()?.is_dir() {
                        remove_directory(&entry.path())?;
                    } else {
                        remove_file(&entry.path())?;
                    }
                }
            }
        }
        remove_directory(&own)
    }

    /// Waits for the daemon of now and of later.
    pub(super) fn listen(&self, cell: &CellName) -> io::Result<UnixListener> {
        let directory = open_directory(&self.of_cell(cell))?;
        let path = control(&directory);
        remove_file(&path)?;
        UnixListener::bind(path)
    }

    pub(super) fn connect(&self, cell: &CellName) -> io::Result<UnixStream> {
        let directory = open_directory(&self.of_cell(cell))?;
        UnixStream::connect(control(&directory))
    }
}

/// Through its directory's descriptor: the path of a socket is 108 bytes at most.
fn control(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/{CONTROL}", directory.as_raw_fd()))
}

pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a directory with all that is in it; one that is gone already is fine.
pub(super) fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file; one that is gone already is fine.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The control group of a cell's first process: not within the cell's own, whose limits are for
/// what it runs.
pub(super) fn shim_group(cell: &CellName) -> String {
    format!("{SHIMS}/{}", cell.key())
}

pub(super) const SHIM_GROUPS: &str = SHIMS;

/// Whether a control group inside a cell's is that of an executable, not of a nested cell.
pub(super) fn is_of_executable(group: &str) -> bool {
    let name = group.rsplit('/').next();
    name.is_some_and(|name| name.starts_with(OWN))
}

/// The control group of one executable and all it starts.
pub(super) fn executable_group(cell: &CellName, name: &ExecutableName) -> String {
    format!("{cell}/{OWN}{name}")
}
