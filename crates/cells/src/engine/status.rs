//! Status of cells, executables and runs.

use std::sync::Arc;

use mainstay_journal::Timestamp;

use super::cell::{Cell, Phase};
use super::cgroup_names::executable_cgroup;
use super::{CellError, Cells};
use crate::cgroup;
use crate::name::{CellName, ExecutableName};
use crate::record::{CellRecord, ExecutableRecord, ExitStatus, Run, RunEnd};

/// A cell and its executables.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellStatus {
    /// Only the name is known if the record is unreadable.
    pub cell: CellRecord,
    /// Why the record is unreadable. Such a cell can be freed, nothing else.
    pub unreadable: Option<String>,
    pub cgroup_v2: bool,
    /// The host PID of the cell's shim, while it runs.
    pub shim_pid: Option<i32>,
    pub executables: Vec<ExecutableRecord>,
    /// Executables with an unreadable record, and why it is. Their output is kept.
    pub unreadable_executables: Vec<(ExecutableName, String)>,
}

/// One run of an executable, as found by its PID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    pub cell: CellName,
    pub executable: ExecutableName,
    pub run: Run,
    /// The name of its log.
    pub log: String,
}

pub use cgroup::Usage;

/// A ready cell at one moment.
struct ReadyCell {
    cell: Arc<Cell>,
    shim_pid: Option<i32>,
    executables: Vec<Arc<ExecutableRecord>>,
    unreadable_executables: Vec<(ExecutableName, String)>,
}

impl ReadyCell {
    fn of(cell: &Arc<Cell>) -> Option<Self> {
        let state = cell.state();
        (state.phase == Phase::Ready).then(|| Self {
            cell: Arc::clone(cell),
            shim_pid: state
                .shim
                .as_ref()
                .map(|shim| shim.pid.as_raw_nonzero().get()),
            executables: state.executables.values().cloned().collect(),
            unreadable_executables: state.unreadable_executables.clone().into_iter().collect(),
        })
    }
}

impl Cells {
    /// Lists all cells, a parent before those nested in it.
    pub fn list(&self) -> Vec<CellStatus> {
        let seen: Vec<ReadyCell> = {
            // One moment for all: a Free takes a cell with all nested ones, so none is seen without
            // them. Nothing under the lock waits for I/O, and records are shared, not copied.
            let cells = self.0.cells();
            cells.values().filter_map(ReadyCell::of).collect()
        };
        let status = |seen: ReadyCell| CellStatus {
            cell: seen.cell.record.clone(),
            unreadable: seen.cell.unreadable.clone(),
            cgroup_v2: self.0.is_v2(),
            shim_pid: seen.shim_pid,
            executables: seen
                .executables
                .iter()
                .map(|record| (**record).clone())
                .collect(),
            unreadable_executables: seen.unreadable_executables,
        };
        seen.into_iter().map(status).collect()
    }

    /// Finds the latest run with this host PID.
    pub fn find_run(&self, pid: i32) -> Option<FoundRun> {
        let cells: Vec<Arc<Cell>> = self.0.cells().values().cloned().collect();
        let mut found: Option<FoundRun> = None;
        for cell in cells {
            let state = cell.state();
            for record in state.executables.values() {
                let Some(run) = record.all_runs().find(|run| run.pid == pid) else {
                    continue;
                };
                if found
                    .as_ref()
                    .is_none_or(|found| found.run.started < run.started)
                {
                    found = Some(FoundRun {
                        cell: cell.name().clone(),
                        executable: record.name.clone(),
                        run: *run,
                        log: record.name.key(cell.name()),
                    });
                }
            }
        }
        found
    }

    /// Waits until a run has ended. It is lost if its cell is freed first.
    pub async fn until_ended(&self, found: &FoundRun) -> Run {
        let cell = self.0.cells().get(&found.cell).cloned();
        let ended = match cell {
            Some(cell) => cell.until_ended(&found.executable, found.run.started).await,
            None => None,
        };
        // Nothing is known of a run whose cell was freed; its event says the same.
        let lost = RunEnd {
            at: Timestamp::now().as_nanos(),
            status: ExitStatus::Lost,
        };
        ended.unwrap_or(Run {
            end: found.run.end.or(Some(lost)),
            ..found.run
        })
    }

    /// Reads the resource usage of an executable and its descendants. Blocks on the kernel.
    pub fn usage(&self, cell: &CellName, executable: &ExecutableName) -> Result<Usage, CellError> {
        let cgroup = executable_cgroup(cell, executable);
        let cgroups = self.0.cgroups()?;
        cgroups.usage(&cgroup).map_err(CellError::Cgroup)
    }

    /// Returns whether a process runs inside a cell. Blocks on the kernel.
    pub fn owns(&self, pid: i32) -> bool {
        self.0
            .cgroups
            .as_ref()
            .is_ok_and(|cgroups| cgroups.contains(pid))
    }
}
