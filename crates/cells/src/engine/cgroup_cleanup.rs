//! Removal of the cgroups of ended executables.

use super::Inner;
use super::cell::{Cell, Phase};
use super::cgroup_names::executable_cgroup;
use crate::name::ExecutableName;

impl Inner {
    /// Removes the cgroup of an executable that has ended, unless processes are left in it. If a
    /// start is in progress in the cell, that start removes it.
    pub(super) fn remove_executable_cgroup(&self, cell: &Cell, name: &ExecutableName) {
        cell.state().stale_cgroups.push(name.clone());
        if let Ok(_order) = cell.order.try_lock() {
            self.remove_stale_cgroups(cell);
        }
    }

    /// Removes the cgroups of ended executables. The caller holds the cell's order, so none of
    /// them starts meanwhile.
    pub(super) fn remove_stale_cgroups(&self, cell: &Cell) {
        // A freed cell owns no cgroups any more: those of its name belong to a later cell. A Free
        // takes the order first, so the cell cannot be freed from here on.
        if cell.state().phase == Phase::Gone {
            return;
        }
        let mut ended = std::mem::take(&mut cell.state().stale_cgroups);
        ended.retain(|name| cell.state().running(name).is_none());
        let Ok(cgroups) = self.cgroups() else {
            return;
        };
        for name in ended {
            let cgroup = executable_cgroup(cell.name(), &name);
            let record = cell.state().executables.get(&name).cloned();
            let _ = match record.is_none_or(|record| record.spec.limits.is_empty()) {
                true => cgroups.remove_membership(&cgroup),
                false => cgroups.remove(&cgroup),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use mainstay_journal::LogLimits;

    use super::super::{CellEvent, CellEvents, Cells, Settings};
    use super::executable_cgroup;
    use crate::limits::Limits;
    use crate::name::CellName;
    use crate::spec::CellSpec;
    use crate::zygote::ZygoteCommand;

    #[derive(Debug)]
    struct NoEvents;

    impl CellEvents for NoEvents {
        fn publish(&self, _: CellEvent) {}
    }

    /// The watch thread may still hold a cell when the next one of its name starts an executable.
    #[tokio::test]
    async fn a_freed_cell_does_not_remove_the_cgroups_of_the_next_cell_of_its_name() {
        let state = tempfile::tempdir().unwrap();
        let settings = Settings {
            state: state.path().to_owned(),
            hidden: Vec::new(),
            cgroup: format!("mainstay-test-{}-freed-cell", std::process::id()),
            layout: None,
            zygote: ZygoteCommand::default(),
            logs_keep_free: 0,
            logs: LogLimits {
                file_bytes: 1 << 20,
                total_bytes: 1 << 20,
            },
            grace: Duration::ZERO,
            uid_range: (0, 0),
            user_namespace: false,
            default_pids: Some(4096),
            unconfined: false,
        };
        let cells = Cells::open(settings, NoEvents).unwrap();
        let name: CellName = "a".parse().unwrap();
        let executable = "x".parse().unwrap();
        let spec = CellSpec::default;
        cells.allocate(name.clone(), spec()).await.unwrap();
        let freed = Arc::clone(&cells.0.cells()[&name]);
        cells.free(name.clone()).await.unwrap();
        cells.allocate(name.clone(), spec()).await.unwrap();
        let cgroups = cells.0.cgroups().unwrap();
        let cgroup = executable_cgroup(&name, &executable);
        cgroups.create(&cgroup, &Limits::default()).unwrap();
        cells.0.remove_executable_cgroup(&freed, &executable);
        assert!(cgroups.exists(&cgroup));
        let current = Arc::clone(&cells.0.cells()[&name]);
        cells.0.remove_executable_cgroup(&current, &executable);
        assert!(!cgroups.exists(&cgroup));
        cells.free(name).await.unwrap();
    }
}
