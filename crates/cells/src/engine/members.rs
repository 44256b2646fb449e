//! The processes of a cell.

use std::sync::Arc;

use super::cgroup_names::{executable_cgroup, is_of_executable};
use super::{CellError, Cells, blocking, lock};
use crate::name::{CellName, ExecutableName};

impl Cells {
    /// Lists the host PIDs of the processes in a cell, without those of nested cells. Blocks on the
    /// kernel.
    pub fn members(&self, cell: &CellName) -> Result<Vec<i32>, CellError> {
        let names: Vec<_> = {
            let cell = self.0.find(cell)?;
            let state = cell.state();
            state.executables.keys().cloned().collect()
        };
        let cgroups = self.0.cgroups()?;
        let mut pids = Vec::new();
        for name in names {
            let cgroup = executable_cgroup(cell, &name);
            let processes = cgroups.processes(&cgroup).map_err(CellError::Cgroup)?;
            pids.extend(processes.into_iter().map(|pid| pid.as_raw_nonzero().get()));
        }
        Ok(pids)
    }

    /// Lists the host PIDs of the processes of one executable. Blocks on the kernel.
    pub fn processes_of(
        &self,
        cell: &CellName,
        executable: &ExecutableName,
    ) -> Result<Vec<i32>, CellError> {
        let cgroups = self.0.cgroups()?;
        let processes = cgroups.processes(&executable_cgroup(cell, executable));
        let processes = processes.map_err(CellError::Cgroup)?.into_iter();
        Ok(processes.map(|pid| pid.as_raw_nonzero().get()).collect())
    }

    /// Removes the record and the log of an executable that has ended.
    pub async fn forget(
        &self,
        cell: CellName,
        executable: ExecutableName,
    ) -> Result<(), CellError> {
        let found = self.0.find(&cell)?;
        // Nothing starts in the cell meanwhile.
        let order = Arc::clone(&found.order).lock_owned().await;
        let inner = Arc::clone(&self.0);
        blocking(&cell, move || {
            let _order = order;
            let _files = lock(&found.files);
            let cell = found.name();
            {
                let mut state = found.state();
                if state.running(&executable).is_some() {
                    return Err(CellError::AlreadyRunning {
                        cell: cell.clone(),
                        executable,
                    });
                }
                state.executables.remove(&executable);
                state.published.remove(&executable);
            }
            if let Ok(cgroups) = inner.cgroups() {
                let _ = cgroups.remove(&executable_cgroup(cell, &executable));
            }
            let removed = inner.paths.remove_executable(cell, &executable);
            removed.map(drop).map_err(|source| CellError::RecordIo {
                cell: cell.clone(),
                source,
            })
        })
        .await
    }

    /// Returns whether a process or thread is in a cell, and not in a nested one. False if it has
    /// exited. Blocks on the kernel.
    pub fn is_member(&self, cell: &CellName, pid: i32) -> bool {
        let cgroups = self.0.cgroups();
        let cgroup = cgroups.ok().and_then(|cgroups| cgroups.cgroup_of(pid));
        cgroup.is_some_and(|cgroup| is_of_executable(cell, &cgroup))
    }

    /// Returns the host PID of the cell's shim, which forks its executables, while it runs.
    pub fn shim_pid(&self, cell: &CellName) -> Option<i32> {
        let cell = self.0.cells().get(cell).cloned()?;
        let state = cell.state();
        let shim = state.shim.as_ref()?;
        Some(shim.pid.as_raw_nonzero().get())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_executables_of_the_cell_itself_are_its_members() {
        let cell: CellName = "a/b".parse().unwrap();
        assert!(is_of_executable(&cell, "a/b/_web"));
        assert!(is_of_executable(&cell, "a/b/_web/sub"));
        for other in ["a/b", "a/b/c/_web", "a/_web", "a/bb/_web", "_shims/a.b", ""] {
            assert!(!is_of_executable(&cell, other), "{other}");
        }
    }
}
