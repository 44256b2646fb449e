//! The exit of a shim: everything in its cell has ended with it.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_error_chain::chain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use super::cell::Cell;
use super::cgroup_names::is_executable_cgroup;
use super::{Inner, lock};
use crate::name::ExecutableName;
use crate::record::{self, ExecutableRecord, ExitStatus, RunEnd};
use crate::spec::Namespace;

impl Inner {
    /// Marks the executables of the cell as lost if its shim has exited; returns whether it has.
    pub(super) fn handle_shim_exit(&self, cell: &Arc<Cell>) -> bool {
        {
            let mut state = cell.state();
            let exited = state.shim.as_ref().map(|shim| has_exited(&shim.pidfd));
            // A Free kills the shim itself.
            if exited != Some(true) || state.is_being_freed() {
                return false;
            }
            state.shim = None;
        }
        tracing::warn!(cell = %cell.name(), "the shim of a cell has exited");
        self.mark_lost(cell);
        true
    }

    /// Marks running executables as lost in their records, which have no other writer now.
    ///
    /// Kills those that share the host's PID namespace and so survive their shim: nothing reads
    /// their output or would record their exit.
    pub(super) fn mark_lost(&self, cell: &Arc<Cell>) {
        if let (true, Ok(cgroups)) = (cell.shares(Namespace::Pid), self.cgroups()) {
            for cgroup in cgroups.children(cell.name().as_str()) {
                if is_executable_cgroup(&cgroup)
                    && let Err(error) = cgroups.kill(&cgroup)
                {
                    let error = chain(&error);
                    tracing::warn!(cell = %cell.name(), error, "cannot kill an orphaned executable");
                }
            }
        }
        let known: Vec<ExecutableName> = cell.state().executables.keys().cloned().collect();
        for name in known {
            // The shim may have written a newer record before it exited.
            self.read_record(cell, &name);
            let Some(record) = self.write_lost(cell, &name) else {
                continue;
            };
            self.apply_record(cell, record);
        }
    }

    /// Writes that an executable was lost, if it ran.
    fn write_lost(&self, cell: &Cell, name: &ExecutableName) -> Option<ExecutableRecord> {
        let _files = lock(&cell.files);
        let mut record = {
            let state = cell.state();
            let record = state.executables.get(name);
            let record = record.filter(|record| record.run.is_running())?;
            if state.is_being_freed() {
                return None;
            }
            (**record).clone()
        };
        record.run.end = Some(RunEnd {
            at: mainstay_journal::Timestamp::now().as_nanos(),
            status: ExitStatus::Lost,
        });
        let path = self.paths.executable_record(cell.name(), name);
        if let Err(error) = record::write_executable(&path, &record) {
            tracing::warn!(cell = %cell.name(), %error, "cannot write the end of an executable");
        }
        Some(record)
    }
}

/// Waits until the process of a pidfd has exited, or for at most `timeout`; returns whether it has.
pub(super) fn wait_for_exit(pidfd: &OwnedFd, timeout: Duration) -> bool {
    let deadline = Instant::now() + timeout;
    loop {
        let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
        let left = deadline.saturating_duration_since(Instant::now());
        let left = rustix::event::Timespec::try_from(left).unwrap_or_default();
        match poll(&mut fds, Some(&left)) {
            Err(Errno::INTR) => {}
            ready => return ready.is_ok_and(|ready| ready > 0),
        }
    }
}

fn has_exited(pidfd: &OwnedFd) -> bool {
    wait_for_exit(pidfd, Duration::ZERO)
}
