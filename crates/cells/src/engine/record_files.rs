//! Records of executables that shims write, from their files to the state.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Inner;
use super::cell::Cell;
use crate::frame;
use crate::name::ExecutableName;
use crate::record::{self, ExecutableRecord};
use crate::shim::protocol::{self, Reply, ReportRequest, Request};

/// A shim replies at once, unless it is stuck.
const REPORT_TIMEOUT: Duration = Duration::from_secs(5);

impl Inner {
    /// Applies the record in a file that a shim has just renamed into place.
    ///
    /// Reads on the watch thread: a file just written is in the page cache.
    pub(super) fn handle_record_file(&self, file: &str) {
        if !file.ends_with(".json") {
            return;
        }
        let read = record::read_executable(&self.paths.executables.join(file));
        // Removed with its cell meanwhile.
        let Ok(record) = read else {
            return;
        };
        let cell = self.cells().get(&record.cell).cloned();
        if let Some(cell) = cell {
            let name = record.name.clone();
            if record.allocated == Some(cell.record.allocated) {
                self.apply_record(&cell, record);
            } else {
                // The first read may be of an earlier cell of that name, whose files were removed
                // before this one was allocated.
                self.read_record(&cell, &name);
            }
            self.remove_executable_cgroup(&cell, &name);
        }
    }

    /// Asks the shim for a record that it cannot write, such as on a full disk.
    ///
    /// On a thread of its own: the shim may be busy.
    pub(super) fn handle_unsaved_record(self: &Arc<Self>, file: &str) {
        let Some(key) = file.strip_suffix(".json") else {
            return;
        };
        let Some((cell_key, name)) = key.split_once('_') else {
            return;
        };
        let cells: Vec<Arc<Cell>> = self.cells().values().cloned().collect();
        let cell = cells.into_iter().find(|cell| cell.name().key() == cell_key);
        let (Some(cell), Ok(name)) = (cell, name.parse::<ExecutableName>()) else {
            return;
        };
        if cell.state().running(&name).is_none() {
            return;
        }
        let inner = Arc::clone(self);
        let builder = thread::Builder::new().name("cell-report".to_owned());
        let spawned = builder.spawn(move || {
            // On failure the shim asks for it again.
            if let Ok(record) = inner.ask_for_record(&cell, name) {
                let name = record.name.clone();
                inner.apply_record(&cell, record);
                inner.remove_executable_cgroup(&cell, &name);
            }
        });
        if let Err(error) = spawned {
            tracing::warn!(%error, "cannot ask for the record of an executable");
        }
    }

    fn ask_for_record(&self, cell: &Cell, name: ExecutableName) -> io::Result<ExecutableRecord> {
        let stream = self.paths.connect(cell.name())?;
        stream.set_read_timeout(Some(REPORT_TIMEOUT))?;
        stream.set_write_timeout(Some(REPORT_TIMEOUT))?;
        let version = protocol::VERSION;
        frame::send(
            &stream,
            &Request::Report(ReportRequest { version, name }),
            &[],
        )?;
        let (body, _) = frame::receive_bytes(&stream)?.ok_or(io::ErrorKind::ConnectionReset)?;
        match Reply::decode(&body)? {
            Reply::Started(record) => Ok(*record),
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    /// Applies all records, after an overflow of the inotify queue.
    pub(super) fn handle_all_record_files(&self) {
        for entry in self
            .paths
            .executables
            .read_dir()
            .into_iter()
            .flatten()
            .flatten()
        {
            if let Some(name) = entry.file_name().to_str() {
                self.handle_record_file(name);
            }
        }
    }

    /// Reads and applies the record of an executable.
    pub(super) fn read_record(&self, cell: &Arc<Cell>, name: &ExecutableName) {
        let read = record::read_executable(&self.paths.executable_record(cell.name(), name));
        if let Ok(record) = read {
            self.apply_record(cell, record);
        }
    }
}
