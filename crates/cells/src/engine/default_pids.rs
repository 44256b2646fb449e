//! The limit of processes of a cell for which none was requested: no fork bomb may take all PIDs of
//! the machine.
//!
//! A limit of the pids cgroup costs nothing in cgroup v2, into which executables are forked. On a
//! hybrid machine a process has to be moved into the v1 cgroup, which takes up to 30 ms when no
//! other has been moved just before. There the PID namespace of the cell is limited instead, which
//! costs one write; Linux has that since 6.14.

use super::Inner;
use crate::cgroup::{CgroupError, CgroupMode, Cgroups};
use crate::limits::Limits;
use crate::spec::{CellSpec, Namespace};

/// The lowest `pid_max` that the kernel accepts.
const MIN_PID_MAX: u32 = 301;
/// The kernel's own limit.
const MAX_PID_MAX: u32 = 1 << 22;

impl Inner {
    /// The highest PID in the namespace of a cell, if that is how its processes are limited.
    pub(super) fn pid_max(&self, spec: &CellSpec) -> Option<u32> {
        let own = !spec.share.contains(&Namespace::Pid);
        (own && spec.limits.pids.is_none() && kernel_has_pid_max_per_namespace())
            .then_some(self.default_pids?)
            .map(|pids| pids.clamp(MIN_PID_MAX, MAX_PID_MAX))
    }

    /// Creates the cgroup of a cell with its limits, and the default limit of processes where that
    /// can be set.
    pub(super) fn create_cell_cgroup(
        &self,
        cgroups: &Cgroups,
        cgroup: &str,
        spec: &CellSpec,
    ) -> Result<(), CgroupError> {
        let limits = Limits {
            pids: spec.limits.pids.or_else(|| self.cgroup_pids(cgroups, spec)),
            ..spec.limits.clone()
        };
        match cgroups.create(cgroup, &limits) {
            // Nobody asked for this limit: a machine without the controller runs cells as well.
            Err(error) if limits != spec.limits && !matches!(error, CgroupError::Exists { .. }) => {
                let created = cgroups.create(cgroup, &spec.limits);
                if created.is_ok() {
                    let error = mainstay_error_chain::chain(&error);
                    tracing::warn!(cell = cgroup, error, "cannot limit the processes of a cell");
                }
                created
            }
            created => created,
        }
    }

    fn cgroup_pids(&self, cgroups: &Cgroups, spec: &CellSpec) -> Option<u64> {
        if cgroups.mode() == CgroupMode::Hybrid && self.pid_max(spec).is_some() {
            return None;
        }
        self.default_pids.map(u64::from)
    }
}

/// Before 6.14 the limit is the machine's, also when it is written inside a namespace.
fn kernel_has_pid_max_per_namespace() -> bool {
    let uname = rustix::system::uname();
    let release = uname.release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    let mut next = || numbers.next().and_then(|number| number.parse::<u32>().ok());
    (next(), next()) >= (Some(6), Some(14))
}
