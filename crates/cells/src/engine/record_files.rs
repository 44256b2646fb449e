//! Records of executables that shims write, from their files to the state.

use std::sync::Arc;

use super::Inner;
use super::cell::Cell;
use crate::name::ExecutableName;
use crate::record;

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
            // Read again: the first read may be of an earlier cell of that name, whose files were
            // removed before this one was allocated.
            self.read_record(&cell, &record.name);
            self.remove_executable_cgroup(&cell, &record.name);
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
