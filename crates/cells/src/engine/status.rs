//! What there is, for whoever asks.

use std::sync::Arc;

use super::cell::{Cell, Phase};
use super::places::executable_group;
use super::{CellError, Cells};
use crate::cgroup;
use crate::name::{CellName, ExecutableName};
use crate::record::{CellRecord, ExecutableRecord, Run};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellStatus {
    pub cell: CellRecord,
    pub cgroup_v2: bool,
    /// The first process of the cell, once it has run anything.
    pub shim_pid: Option<i32>,
    pub executables: Vec<ExecutableRecord>,
}

/// One run of an executable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundRun {
    pub cell: CellName,
    pub executable: ExecutableName,
    pub run: Run,
    /// The name of its log.
    pub log: String,
}

pub use cgroup::Usage;

impl Cells {
    /// Every cell, those that others are nested in before what is nested.
    pub fn list(&self) -> Vec<CellStatus> {
        // Held to the end: a cell is freed with all that are nested in it, and is never seen
        // without them.
        let cells = self.0.cells();
        let status = |cell: &Arc<Cell>| {
            let state = cell.state();
            (state.phase == Phase::There).then(|| CellStatus {
                cell: cell.record.clone(),
                cgroup_v2: self.0.is_v2(),
                shim_pid: state
                    .shim
                    .as_ref()
                    .map(|shim| shim.pid.as_raw_nonzero().get()),
                executables: state
                    .executables
                    .values()
                    .map(|record| (**record).clone())
                    .collect(),
            })
        };
        cells.values().filter_map(status).collect()
    }

    /// The latest run that had this number on the host.
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

    /// Waits until a run has ended, or its cell is gone; then it has no end.
    pub async fn until_ended(&self, found: &FoundRun) -> Run {
        let cell = self.0.cells().get(&found.cell).cloned();
        let ended = match cell {
            Some(cell) => cell.until_ended(&found.executable, found.run.started).await,
            None => None,
        };
        ended.unwrap_or(found.run)
    }

    /// What an executable and all it started use. Blocks on the kernel.
    pub fn usage(&self, cell: &CellName, executable: &ExecutableName) -> Result<Usage, CellError> {
        let group = executable_group(cell, executable);
        let groups = self.0.cgroups()?;
        groups.usage(&group).map_err(CellError::Cgroup)
    }

    /// Whether a process is one of a cell's. Blocks on the kernel.
    pub fn owns(&self, pid: i32) -> bool {
        self.0
            .cgroups
            .as_ref()
            .is_ok_and(|groups| groups.is_inside(pid))
    }
}
