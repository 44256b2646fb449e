//! Ending executables: asked first, killed when their time is over.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, pidfd_send_signal};
use tokio::time::timeout;

use super::cell::Cell;
use super::error::CellError;
use super::places::executable_group;
use super::turns::StopTurn;
use super::{Inner, blocking, lock};
use crate::cgroup::CgroupError;
use crate::name::{CellName, ExecutableName};
use crate::sys;

/// A killed process ends at once, unless the kernel waits for something, such as a dead disk.
pub(super) const LONGEST_END: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, Default)]
pub struct StopHow {
    /// What it is asked with; SIGTERM if nothing else is said.
    pub signal: Option<Signal>,
    /// How long it has to end; as the node is set up if not said.
    pub grace: Option<Duration>,
}

pub(super) async fn stop(
    inner: Arc<Inner>,
    name: CellName,
    executable: Option<ExecutableName>,
    how: StopHow,
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
    let mut stopping = tokio::task::JoinSet::new();
    for executable in executables {
        let (inner, cell) = (Arc::clone(&inner), Arc::clone(&cell));
        stopping.spawn(async move { stop_one(&inner, &cell, executable, how).await });
    }
    let mut done = Ok(());
    while let Some(stopped) = stopping.join_next().await {
        let interrupted = |_| CellError::Interrupted { cell: name.clone() };
        done = done.and(stopped.map_err(interrupted).and_then(|stopped| stopped));
    }
    done
}

/// Executables that run, or have ended and left something running.
async fn all_with_processes(
    inner: &Arc<Inner>,
    cell: &Arc<Cell>,
) -> Result<Vec<ExecutableName>, CellError> {
    let (inner, cell) = (Arc::clone(inner), Arc::clone(cell));
    let name = cell.name().clone();
    blocking(&name, move || {
        let groups: BTreeSet<String> = inner
            .cgroups()?
            .inside(cell.name().as_str())
            .into_iter()
            .collect();
        let state = cell.state();
        let may = state.executables.values().filter(|record| {
            let group = executable_group(cell.name(), &record.name);
            record.run.is_running() || groups.contains(&group)
        });
        Ok(may.map(|record| record.name.clone()).collect())
    })
    .await
}

async fn stop_one(
    inner: &Arc<Inner>,
    cell: &Arc<Cell>,
    executable: ExecutableName,
    how: StopHow,
) -> Result<(), CellError> {
    let _turn = StopTurn::take(cell, &executable).await;
    let group = executable_group(cell.name(), &executable);
    let running = cell.state().running(&executable);
    if running.is_none() && inner.members(cell.name(), &group).await?.is_empty() {
        return Ok(());
    }
    let signal = how.signal.unwrap_or(Signal::TERM);
    let grace = how.grace.unwrap_or_else(|| *lock(&inner.grace));
    let asked = inner.until_empty(cell.name(), &group, Some(signal));
    if timeout(grace, asked).await.is_err() {
        inner
            .with_groups(cell.name(), &group, |groups, group| groups.kill(group))
            .await?;
        inner
            .until_gone(cell.name(), &group, executable.as_str())
            .await?;
    }
    let Some(run) = running else {
        return Ok(());
    };
    // Its last words and its exit code are on their way.
    let noted = timeout(LONGEST_END, cell.until_ended(&executable, run.started)).await;
    noted.map(drop).map_err(|_| CellError::Unkillable {
        cell: cell.name().clone(),
        what: executable.to_string(),
    })
}

impl Inner {
    async fn members(
        self: &Arc<Self>,
        cell: &CellName,
        group: &str,
    ) -> Result<Vec<Pid>, CellError> {
        self.with_groups(cell, group, |groups, group| groups.processes(group))
            .await
    }

    pub(super) async fn with_groups<T: Send + 'static>(
        self: &Arc<Self>,
        cell: &CellName,
        group: &str,
        work: impl FnOnce(&crate::cgroup::Cgroups, &str) -> Result<T, CgroupError> + Send + 'static,
    ) -> Result<T, CellError> {
        let (inner, group) = (Arc::clone(self), group.to_owned());
        blocking(cell, move || {
            work(inner.cgroups()?, &group).map_err(CellError::Cgroup)
        })
        .await
    }

    /// Waits until nothing is left in a group, by the ends of its processes. All of them are
    /// asked to end by the signal, if there is one; also who is born after that, once those who
    /// were there have ended: until then they may need them to.
    async fn until_empty(
        self: &Arc<Self>,
        cell: &CellName,
        group: &str,
        signal: Option<Signal>,
    ) -> Result<(), CellError> {
        let mut asked = HashSet::new();
        loop {
            let known = asked.clone();
            let (handles, empty) = self
                .with_groups(cell, group, move |groups, group| {
                    let handles = groups.handles(group)?;
                    if let Some(signal) = signal {
                        let new = handles.iter().filter(|(pid, _)| !known.contains(pid));
                        for (_, handle) in new {
                            // It may have ended since.
                            let _ = pidfd_send_signal(handle, signal);
                        }
                    }
                    let empty = handles.is_empty() && groups.processes(group)?.is_empty();
                    Ok((handles, empty))
                })
                .await?;
            if empty {
                return Ok(());
            }
            for (pid, ended) in handles {
                asked.insert(pid);
                let _ = sys::until_ended(ended).await;
            }
        }
    }

    /// The same, for what was killed.
    pub(super) async fn until_gone(
        self: &Arc<Self>,
        cell: &CellName,
        group: &str,
        what: &str,
    ) -> Result<(), CellError> {
        let empty = timeout(LONGEST_END, self.until_empty(cell, group, None)).await;
        empty.unwrap_or_else(|_| {
            Err(CellError::Unkillable {
                cell: cell.clone(),
                what: what.to_owned(),
            })
        })
    }
}
