//! Cells and their executables as workloads: a cell is listed like a pod, and each executable like
//! a container in it.

use std::fmt;
use std::str::FromStr;

use mainstay_cells::{CellName, CellStatus, Cells, ExecutableName, ExecutableRecord};
use mainstay_containers::Driver;
use mainstay_journal::{LogError, LogQuery, LogStream, Stream, Timestamp};

use super::{
    LogSelector, OWN_NAMESPACE, ProcessOutput, SYSTEM_NAMESPACE, Scope, Source, Workload,
    WorkloadError, WorkloadUsage,
};
use crate::engines::Engines;

/// The id of an executable among the workloads: `<cell>/<executable>`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecutableId {
    pub cell: CellName,
    pub executable: ExecutableName,
}

/// Text that does not name an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an executable is named <cell>/<executable>")]
pub struct NotAnExecutable;

impl FromStr for ExecutableId {
    type Err = NotAnExecutable;

    fn from_str(id: &str) -> Result<Self, NotAnExecutable> {
        // A cell's own name may contain slashes: it is nested.
        let (cell, executable) = id.rsplit_once('/').ok_or(NotAnExecutable)?;
        Ok(Self {
            cell: cell.parse().map_err(|_| NotAnExecutable)?,
            executable: executable.parse().map_err(|_| NotAnExecutable)?,
        })
    }
}

impl fmt::Display for ExecutableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.cell, self.executable)
    }
}

impl ExecutableId {
    pub fn of(record: &ExecutableRecord) -> Self {
        Self {
            cell: record.cell.clone(),
            executable: record.name.clone(),
        }
    }
}

/// The workloads of the cells engine.
#[derive(Debug)]
pub struct CellWorkloads {
    cells: Cells,
}

impl CellWorkloads {
    pub(super) fn new(engines: &Engines) -> Self {
        Self {
            cells: engines.cells.clone(),
        }
    }

    pub(super) async fn process_output(
        &self,
        pid: i64,
        channel: Stream,
        since: Option<Timestamp>,
    ) -> Result<ProcessOutput, WorkloadError> {
        let found = i32::try_from(pid)
            .ok()
            .and_then(|pid| self.cells.find_run(pid));
        let found = found.ok_or(WorkloadError::NoSuchProcess { pid })?;
        ProcessOutput::open(self.cells.clone(), found, channel, since).await
    }

    fn find(&self, id: &ExecutableId) -> Option<ExecutableRecord> {
        let mut cells = self.cells.list().into_iter();
        let status = cells.find(|status| status.cell.name == id.cell)?;
        let mut executables = status.executables.into_iter();
        executables.find(|record| record.name == id.executable)
    }
}

/// Cells are shown to clients of the default driver, alone or among all namespaces.
fn in_scope(scope: Scope<'_>) -> bool {
    scope.driver == Driver::Containerd && matches!(scope.namespace, "" | OWN_NAMESPACE)
}

impl Source for CellWorkloads {
    async fn list(&self, scope: Scope<'_>) -> Result<Vec<Workload>, WorkloadError> {
        if !in_scope(scope) {
            return Ok(Vec::new());
        }
        let cells = self.cells.list();
        Ok(cells.iter().flat_map(workloads).collect())
    }

    async fn usage(&self, scope: Scope<'_>) -> Result<Vec<WorkloadUsage>, WorkloadError> {
        if !in_scope(scope) {
            return Ok(Vec::new());
        }
        let cells = self.cells.clone();
        let read = tokio::task::spawn_blocking(move || {
            let running = |status: CellStatus| {
                let executables = status.executables.into_iter();
                executables.filter(|record| record.run.is_running())
            };
            let records = cells.list().into_iter().flat_map(running);
            // An executable that exits meanwhile uses nothing any more.
            records
                .filter_map(|record| usage(&cells, &record))
                .collect()
        });
        read.await.map_err(|_| WorkloadError::Panicked {
            what: "resource usage of cells",
        })
    }

    /// Stops an executable and starts it with the specification it has.
    async fn restart(&self, scope: Scope<'_>, id: &str) -> Option<Result<(), WorkloadError>> {
        if !scope.is_cells() {
            return None;
        }
        let unknown = || WorkloadError::NoSuchWorkload { id: id.to_owned() };
        let Ok(executable) = id.parse::<ExecutableId>() else {
            return Some(Err(unknown()));
        };
        let Some(record) = self.find(&executable) else {
            return Some(Err(unknown()));
        };
        let ExecutableId { cell, executable } = executable;
        let done = self.cells.restart(cell, executable, record.spec).await;
        Some(done.map(drop).map_err(WorkloadError::Cell))
    }

    /// Claims our own namespace, and ids that no log of the node itself can have.
    async fn log(
        &self,
        log: LogSelector<'_>,
        query: LogQuery,
    ) -> Option<Result<LogStream, WorkloadError>> {
        let unknown = || WorkloadError::NoSuchLog {
            id: log.id.to_owned(),
        };
        let executable = match (log.scope.namespace, log.id.parse::<ExecutableId>()) {
            (OWN_NAMESPACE | "" | SYSTEM_NAMESPACE, Ok(executable)) => executable,
            (OWN_NAMESPACE, Err(_)) => return Some(Err(unknown())),
            _ => return None,
        };
        if log.previous {
            return Some(Err(WorkloadError::NoPreviousRun));
        }
        let ExecutableId { cell, executable } = executable;
        let opened = self.cells.read_log(&cell, &executable, query).await;
        Some(opened.map_err(|error| match error {
            LogError::NotFound { .. } => unknown(),
            error => error.into(),
        }))
    }

    async fn log_ids(&self) -> Result<Vec<String>, WorkloadError> {
        let cells = self.cells.list();
        let records = cells.iter().flat_map(|status| &status.executables);
        Ok(records
            .map(|record| ExecutableId::of(record).to_string())
            .collect())
    }
}

fn workloads(status: &CellStatus) -> Vec<Workload> {
    let name = status.cell.name.to_string();
    let base = Workload {
        namespace: OWN_NAMESPACE.to_owned(),
        pod: name.clone(),
        ..Workload::default()
    };
    let cell = Workload {
        id: name.clone(),
        pid: pid(status.shim_pid.unwrap_or(0)),
        state: match status.unreadable {
            None => "SANDBOX_READY",
            Some(_) => "SANDBOX_NOTREADY",
        },
        name,
        ..base.clone()
    };
    let executable = |record: &ExecutableRecord| {
        let (pid, state) = if record.run.is_running() {
            (pid(record.run.pid), "RUNNING")
        } else {
            (0, "STOPPED")
        };
        Workload {
            id: ExecutableId::of(record).to_string(),
            pid,
            state,
            name: record.name.to_string(),
            // The program is the closest an executable has to an image.
            image: record.spec.words.first().cloned().unwrap_or_default(),
            ..base.clone()
        }
    };
    let executables = status.executables.iter().map(executable);
    std::iter::once(cell).chain(executables).collect()
}

fn pid(pid: i32) -> u32 {
    u32::try_from(pid).unwrap_or(0)
}

fn usage(cells: &Cells, record: &ExecutableRecord) -> Option<WorkloadUsage> {
    let usage = cells.usage(&record.cell, &record.name).ok()?;
    Some(WorkloadUsage {
        namespace: OWN_NAMESPACE.to_owned(),
        id: ExecutableId::of(record).to_string(),
        pod: record.cell.to_string(),
        name: record.name.to_string(),
        memory_bytes: usage.memory_bytes,
        cpu_nanos: usage.cpu_nanos,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_executable_is_named_after_its_cell() {
        let id: ExecutableId = "outer/inner/web".parse().unwrap();
        assert_eq!(id.cell.as_str(), "outer/inner");
        assert_eq!(id.executable.to_string(), "web");
        assert_eq!(id.to_string(), "outer/inner/web");
        for text in ["", "web", "/web", "cell/", "a b/web", "../web"] {
            assert!(text.parse::<ExecutableId>().is_err(), "{text:?}");
        }
    }
}
