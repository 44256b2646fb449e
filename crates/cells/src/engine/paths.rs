//! Files and directories of cells.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use crate::name::{CellName, ExecutableName};

/// The control socket of a cell's shim.
const CONTROL_SOCKET: &str = "control";

/// The directories of cells, accessible to root alone.
#[derive(Debug)]
pub(super) struct Paths {
    root: PathBuf,
    /// One directory per cell: its record and the control socket of its shim.
    pub(super) cells: PathBuf,
    /// One record per executable.
    pub(super) executables: PathBuf,
    /// One log per executable.
    pub(super) logs: PathBuf,
}

impl Paths {
    /// Creates the directories.
    pub(super) fn create(root: &Path) -> io::Result<Self> {
        let paths = Self {
            root: root.to_owned(),
            cells: root.join("cells"),
            executables: root.join("executables"),
            logs: root.join("logs"),
        };
        for path in [&paths.cells, &paths.executables, &paths.logs] {
            create_directory(path)?;
        }
        Ok(paths)
    }

    pub(super) fn cell_directory(&self, cell: &CellName) -> PathBuf {
        self.cells.join(cell.key())
    }

    pub(super) fn cell_record(&self, cell: &CellName) -> PathBuf {
        self.cell_directory(cell).join("cell.json")
    }

    /// How far events have been published; the name is that of the first version.
    pub(super) fn event_cursor(&self) -> PathBuf {
        self.root.join("told")
    }

    pub(super) fn executable_record(&self, cell: &CellName, name: &ExecutableName) -> PathBuf {
        self.executables.join(format!("{}.json", name.key(cell)))
    }

    /// Removes the record and the log of an executable. Returns the removed record, open: the kernel
    /// writes back a record that has just replaced another, and closing it waits for that.
    pub(super) fn remove_executable(
        &self,
        cell: &CellName,
        name: &ExecutableName,
    ) -> io::Result<Option<OwnedFd>> {
        let record = self.executable_record(cell, name);
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let removed = rustix::fs::open(&record, flags, Mode::empty()).ok();
        // The temporary file stays if the shim was killed before its rename.
        remove_file(&mainstay_records::runtime_temporary_path(&record))?;
        remove_file(&record)?;
        remove_directory(&self.logs.join(name.key(cell)))?;
        Ok(removed)
    }

    /// Removes the records and logs of all executables of a cell, by prefix: for a cell with an
    /// unreadable record, whose executables are not known. Reads the directories of all cells.
    pub(super) fn remove_executables_by_prefix(&self, cell: &CellName) -> io::Result<()> {
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
        Ok(())
    }

    /// Removes the directory of a cell. It goes last: until then the next daemon finds it.
    pub(super) fn remove_cell(&self, cell: &CellName) -> io::Result<()> {
        let own = self.cell_directory(cell);
        // An unreadable cell may be a file where its directory should be.
        match remove_directory(&own) {
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => remove_file(&own),
            removed => removed,
        }
    }

    /// Creates the control socket.
    pub(super) fn listen(&self, cell: &CellName) -> io::Result<UnixListener> {
        let directory = open_directory(&self.cell_directory(cell))?;
        let path = socket_path(&directory);
        remove_file(&path)?;
        UnixListener::bind(path)
    }

    pub(super) fn connect(&self, cell: &CellName) -> io::Result<UnixStream> {
        let directory = open_directory(&self.cell_directory(cell))?;
        UnixStream::connect(socket_path(&directory))
    }
}

/// The path through the directory's file descriptor: socket paths are limited to 108 bytes.
fn socket_path(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!(
        "/proc/self/fd/{}/{CONTROL_SOCKET}",
        directory.as_raw_fd()
    ))
}

pub(super) fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

pub(super) fn create_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Removes a directory recursively. Succeeds if there is none.
pub(super) fn remove_directory(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a file. Succeeds if there is none.
pub(super) fn remove_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}
