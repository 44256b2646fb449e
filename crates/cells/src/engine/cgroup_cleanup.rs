//! Removal of the cgroups of ended executables.

use super::Inner;
use super::cell::Cell;
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
        let mut ended = std::mem::take(&mut cell.state().stale_cgroups);
        ended.retain(|name| cell.state().running(name).is_none());
        let Ok(cgroups) = self.cgroups() else {
            return;
        };
        for name in ended {
            let _ = cgroups.remove_membership(&executable_cgroup(cell.name(), &name));
        }
    }
}
