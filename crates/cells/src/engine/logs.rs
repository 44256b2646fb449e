//! The logs of executables. One that has written nothing has none on disk, which reads as an empty one.

use std::sync::Arc;

use mainstay_journal::{LogError, LogQuery, LogStore, LogStream};

use super::cell::Cell;
use super::{Cells, lock};
use crate::name::{CellName, ExecutableName};

impl Cells {
    /// The logs of executables, by [`FoundRun::log`](super::FoundRun::log), of which those that have
    /// written nothing have none; see [`Cells::read_log`].
    pub fn logs(&self) -> &LogStore {
        &self.0.logs
    }

    /// Opens the log of a known executable for reading, also before its first line.
    pub async fn read_log(
        &self,
        cell: &CellName,
        executable: &ExecutableName,
        query: LogQuery,
    ) -> Result<LogStream, LogError> {
        let key = executable.key(cell);
        let opened = self.logs().read(&key, query).await;
        if !matches!(opened, Err(LogError::NotFound { .. })) {
            return opened;
        }
        let found = self.0.cells().get(cell).cloned();
        let Some(found) = found else {
            return opened;
        };
        // Created for the reader: the shim continues in it, and a follower sees the first line.
        let (cells, executable) = (self.clone(), executable.clone());
        let create = move || create_log(cells.logs(), &found, &executable);
        match tokio::task::spawn_blocking(create).await {
            Ok(created) => created?,
            Err(_) => return Err(LogError::Interrupted { log: key }),
        }
        self.logs().read(&key, query).await
    }

    /// Creates the logs of executables that run and have none: builds from before logs were created
    /// with their first line expect one.
    pub(super) fn create_logs(&self) {
        let cells: Vec<Arc<Cell>> = self.0.cells().values().cloned().collect();
        for cell in cells {
            let running: Vec<ExecutableName> = {
                let state = cell.state();
                let records = state.executables.values();
                let running = records.filter(|record| record.run.is_running());
                running.map(|record| record.name.clone()).collect()
            };
            for executable in running {
                if let Err(error) = create_log(self.logs(), &cell, &executable) {
                    tracing::debug!(cell = %cell.name(), %error, "cannot create the log of an executable");
                }
            }
        }
    }
}

/// Creates the log of an executable unless its files are being removed.
fn create_log(logs: &LogStore, cell: &Cell, executable: &ExecutableName) -> Result<(), LogError> {
    let _files = lock(&cell.files);
    let is_known = {
        let state = cell.state();
        !state.closed && state.executables.contains_key(executable)
    };
    let key = executable.key(cell.name());
    match is_known {
        true => logs.create(&key),
        false => Err(LogError::NotFound { log: key }),
    }
}
