//! Stop: signals executables, and kills them after a grace period.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::time::timeout;

use super::caller::Caller;
use super::cell::Cell;
use super::cgroup_names::executable_cgroup;
use super::error::CellError;
use super::permits::StopPermit;
use super::{Inner, blocking, lock};
use crate::cgroup::CgroupError;
use crate::name::{CellName, ExecutableName};
use crate::sys;

/// A killed process exits at once, unless it is in uninterruptible sleep, such as on a dead disk.
pub(super) const KILL_TIMEOUT: Duration = Duration::from_secs(10);

/// How a Stop ends executables.
#[derive(Debug, Clone, Copy, Default)]
pub struct StopOptions {
    /// The first signal; SIGTERM by default.
    pub signal: Option<Signal>,
    /// The time between the signal and SIGKILL; the node's setting by default.
    pub grace: Option<Duration>,
}

pub(super) async fn stop(
    inner: Arc<Inner>,
    caller: Caller,
    name: CellName,
    executable: Option<ExecutableName>,
    options: StopOptions,
) -> Result<(), CellError> {
    let cell = inner.find(&name)?;
    let executables = match executable {
        Some(one) if cell.state().executables.contains_key(&one) => vec![one],
        Some(executable) => {
            return Err(CellError::NoSuchExecutable {
                cell: name,
                executable,
            });
        }
        None => all_with_processes(&inner, &cell).await?,
    };
    if let [one] = executables.as_slice() {
        let permit = StopPermit::acquire(&cell, one);
        let permit = caller.wait(&name, permit).await?;
        caller.check(&name)?;
        return stop_one(&inner, &cell, one.clone(), options, permit).await;
    }
    // Of several, some are stopped at once: the others follow, whether or not the caller waits.
    caller.check(&name)?;
    let mut stopping = tokio::task::JoinSet::new();
    for executable in executables {
        let (inner, cell) = (Arc::clone(&inner), Arc::clone(&cell));
        stopping.spawn(async move {
            let permit = StopPermit::acquire(&cell, &executable).await;
            stop_one(&inner, &cell, executable, options, permit).await
        });
    }
    let mut done = Ok(());
    while let Some(stopped) = stopping.join_next().await {
        let interrupted = |_| CellError::Interrupted { cell: name.clone() };
        done = done.and(stopped.map_err(interrupted).and_then(|stopped| stopped));
    }
    done
}

/// Lists executables that run, or that have ended and left processes.
async fn all_with_processes(
    inner: &Arc<Inner>,
    cell: &Arc<Cell>,
) -> Result<Vec<ExecutableName>, CellError> {
    let (inner, cell) = (Arc::clone(inner), Arc::clone(cell));
    let name = cell.name().clone();
    blocking(&name, move || {
        let cgroups: BTreeSet<String> = inner
            .cgroups()?
            .children(cell.name().as_str())
            .into_iter()
            .collect();
        let state = cell.state();
        let may = state.executables.values().filter(|record| {
            let cgroup = executable_cgroup(cell.name(), &record.name);
            record.run.is_running() || cgroups.contains(&cgroup)
        });
        Ok(may.map(|record| record.name.clone()).collect())
    })
    .await
}

async fn stop_one(
    inner: &Arc<Inner>,
    cell: &Arc<Cell>,
    executable: ExecutableName,
    options: StopOptions,
    _permit: StopPermit,
) -> Result<(), CellError> {
    let cgroup = executable_cgroup(cell.name(), &executable);
    let running = cell.state().running(&executable);
    if running.is_none() && inner.processes_in(cell.name(), &cgroup).await?.is_empty() {
        return Ok(());
    }
    let signal = options.signal.unwrap_or(Signal::TERM);
    let grace = options.grace.unwrap_or_else(|| *lock(&inner.grace));
    let signalled = inner.until_empty(cell.name(), &cgroup, Some(signal));
    if timeout(grace, signalled).await.is_err() {
        inner
            .with_cgroup(cell.name(), &cgroup, |cgroups, cgroup| cgroups.kill(cgroup))
            .await?;
        inner
            .until_killed(cell.name(), &cgroup, executable.as_str())
            .await?;
    }
    let Some(run) = running else {
        return Ok(());
    };
    // The shim writes the last output and the exit code after the exit.
    let recorded = timeout(KILL_TIMEOUT, cell.until_ended(&executable, run.started)).await;
    recorded.map(drop).map_err(|_| CellError::Unkillable {
        cell: cell.name().clone(),
        process: executable.to_string(),
    })
}

impl Inner {
    async fn processes_in(
        self: &Arc<Self>,
        cell: &CellName,
        cgroup: &str,
    ) -> Result<Vec<Pid>, CellError> {
        self.with_cgroup(cell, cgroup, |cgroups, cgroup| cgroups.processes(cgroup))
            .await
    }

    /// Runs an operation on a cgroup on a blocking thread.
    pub(super) async fn with_cgroup<T: Send + 'static>(
        self: &Arc<Self>,
        cell: &CellName,
        cgroup: &str,
        work: impl FnOnce(&crate::cgroup::Cgroups, &str) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, CellError> {
        let (inner, cgroup) = (Arc::clone(self), cgroup.to_owned());
        blocking(cell, move || {
            work(inner.cgroups()?, &cgroup).map_err(CellError::Cgroup)
        })
        .await
    }

    /// Waits until all processes of a cgroup have exited. Sends the signal, if given, to each of
    /// them; to those forked later only after the earlier ones have exited, which may need them
    /// for a clean exit.
    async fn until_empty(
        self: &Arc<Self>,
        cell: &CellName,
        cgroup: &str,
        signal: Option<Signal>,
    ) -> Result<(), CellError> {
        let mut signalled = HashSet::new();
        loop {
            let known = signalled.clone();
            let (pidfds, empty) = self
                .with_cgroup(cell, cgroup, move |cgroups, cgroup| {
                    let pidfds = cgroups.pidfds(cgroup)?;
                    if let Some(signal) = signal {
                        let new = pidfds.iter().filter(|(pid, _)| !known.contains(pid));
                        for (_, pidfd) in new {
                            // Fails if it has exited since.
                            let _ = pidfd_send_signal(pidfd, signal);
                        }
                    }
                    let empty = pidfds.is_empty() && cgroups.processes(cgroup)?.is_empty();
                    Ok((pidfds, empty))
                })
                .await?;
            if empty {
                return Ok(());
            }
            for (pid, pidfd) in pidfds {
                signalled.insert(pid);
                let _ = sys::until_exited(pidfd).await;
            }
        }
    }

    /// Waits until all killed processes of a cgroup have exited.
    pub(super) async fn until_killed(
        self: &Arc<Self>,
        cell: &CellName,
        cgroup: &str,
        process: &str,
    ) -> Result<(), CellError> {
        let empty = timeout(KILL_TIMEOUT, self.until_empty(cell, cgroup, None)).await;
        empty.unwrap_or_else(|_| {
            Err(CellError::Unkillable {
                cell: cell.clone(),
                process: process.to_owned(),
            })
        })
    }
}
