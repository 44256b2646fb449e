//! Effects of the core: each is begun under the lock of the state, and does its I/O in a task.

use std::cmp::Reverse;
use std::sync::Arc;

use mainstay_cells::{CellError, CellName, ExecutableName, ExitStatus, StopOptions};
use mainstay_error_chain::chain;
use tokio::time::Instant;

use super::slot::Process;
use super::{Inner, State, Timer};
use crate::core::{self, Effect, Ended};
use crate::program::{self, Placement};
use crate::{Definition, ServiceName};

impl Inner {
    /// Begins everything that the core asks for.
    pub(super) fn carry_out(self: &Arc<Self>, state: &mut State, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Launch { service, run } => self.begin_launch(state, service, run),
                Effect::Terminate { service, run } => self.begin_stop(state, service, run),
                Effect::CheckHealth { service, run } => {
                    let Some(definition) = state.core.definition(&service).cloned() else {
                        continue;
                    };
                    tokio::spawn(Arc::clone(self).check_health(service, run, definition));
                }
                Effect::SetTimer {
                    service,
                    timer,
                    after,
                } => self.set_timer(state, service, timer, Instant::now() + after),
                Effect::Publish(change) => {
                    let slot = state.slots.entry(change.service.clone()).or_default();
                    slot.record(&change);
                    self.publisher.publish(change);
                }
                Effect::Removed { service } => {
                    let slot = state.slots.remove(&service).unwrap_or_default();
                    let inner = Arc::clone(self);
                    tokio::spawn(async move {
                        inner.note_stopped(service, false).await;
                        if let Some(placement) = slot.placement {
                            inner.forget(&placement).await;
                        }
                    });
                }
            }
        }
    }

    fn set_timer(&self, state: &mut State, service: ServiceName, number: u64, at: Instant) {
        let first = state.timers.peek();
        if first.is_none_or(|first| at < first.0.at) {
            self.earlier_timer.notify_one();
        }
        state.timers.push(Reverse(Timer {
            at,
            number,
            service,
        }));
    }

    fn begin_launch(self: &Arc<Self>, state: &mut State, service: ServiceName, run: u64) {
        let Some(definition) = state.core.definition(&service).cloned() else {
            return;
        };
        let slot = state.slots.entry(service.clone()).or_default();
        slot.process = None;
        slot.early_end = None;
        slot.stop_failure = None;
        let earlier = match Placement::of(&service, &definition) {
            Some(placement) => slot.placement.replace(placement),
            None => None,
        };
        let earlier = earlier.filter(|earlier| Some(earlier) != slot.placement.as_ref());
        let placement = slot.placement.clone();
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            if let Some(earlier) = earlier {
                inner.forget(&earlier).await;
            }
            let launched = match placement {
                Some(placement) => inner.launch(&placement, &definition).await,
                None => Err("its name is too long for an executable".to_owned()),
            };
            match launched {
                Ok(process) => inner.launched(&service, run, process),
                Err(reason) => {
                    let ended = Ended {
                        succeeded: false,
                        reason,
                    };
                    inner.act(|core, now| core.exited(&service, run, &ended, now));
                }
            }
        });
    }

    async fn launch(
        &self,
        placement: &Placement,
        definition: &Arc<Definition>,
    ) -> Result<Process, String> {
        let spec = resolve(definition).await?;
        self.ensure_cell(placement, definition)
            .await
            .map_err(|error| chain(&error))?;
        let start = || {
            let (cell, executable) = (placement.cell.clone(), placement.executable.clone());
            self.cells.start(cell, executable, spec.clone())
        };
        let started = match start().await {
            // Left by a supervisor that died before it knew of the start.
            Err(CellError::AlreadyRunning { .. }) => {
                let (cell, executable) = (placement.cell.clone(), placement.executable.clone());
                let options = stop_options(definition);
                match self.cells.stop(cell, Some(executable), options).await {
                    Ok(()) => start().await,
                    Err(error) => Err(error),
                }
            }
            started => started,
        };
        started
            .map(Process::from)
            .map_err(|error| format!("cannot start: {}", chain(&error)))
    }

    /// Allocates the cell of a service. One of its own is allocated anew if its definition has
    /// changed since.
    async fn ensure_cell(
        &self,
        placement: &Placement,
        definition: &Definition,
    ) -> Result<(), CellError> {
        let spec = program::cell_spec(definition);
        if let Some(exists) = placement.shared().and_then(|at| self.shared_cells.get(at)) {
            let allocate = || async {
                match self.cells.allocate(placement.cell.clone(), spec).await {
                    Ok(_) | Err(CellError::CellExists { .. }) => Ok(()),
                    Err(error) => Err(error),
                }
            };
            return exists.get_or_try_init(allocate).await.map(drop);
        }
        let allocate = || self.cells.allocate(placement.cell.clone(), spec.clone());
        match allocate().await {
            Ok(_) => Ok(()),
            Err(CellError::CellExists { .. }) => {
                let mut cells = self.cells.list().into_iter();
                let existing = cells.find(|status| status.cell.name == placement.cell);
                if existing.is_some_and(|existing| existing.cell.spec == spec) {
                    return Ok(());
                }
                self.cells.free(placement.cell.clone()).await?;
                allocate().await.map(drop)
            }
            Err(error) => Err(error),
        }
    }

    fn launched(self: &Arc<Self>, service: &ServiceName, run: u64, process: Process) {
        let mut state = self.state();
        let now = state.now();
        let effects = state.core.launched(service, run, now);
        let early_end = state.slots.get_mut(service).and_then(|slot| {
            slot.process = Some(process);
            slot.early_end.take()
        });
        self.carry_out(&mut state, effects);
        if let Some((started, status)) = early_end
            && started == process.started
        {
            self.process_ended(&mut state, service, status);
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// Reports the end of a process, once everything that it left behind has ended too.
    pub(super) fn process_ended(
        self: &Arc<Self>,
        state: &mut State,
        service: &ServiceName,
        status: ExitStatus,
    ) {
        let Some(seen) = state.core.status(service) else {
            return;
        };
        let placement = state.slots.get_mut(service).and_then(|slot| {
            slot.process = None;
            slot.placement.clone()
        });
        let mut ended = Ended {
            succeeded: status == ExitStatus::Exited(0),
            reason: describe(status),
        };
        let run = seen.run;
        let (Some(placement), false) = (placement, seen.state == core::State::Stopping) else {
            // A stop ends all processes before it is done.
            let now = state.now();
            let effects = state.core.exited(service, run, &ended, now);
            return self.carry_out(state, effects);
        };
        let (inner, service) = (Arc::clone(self), service.clone());
        tokio::spawn(async move {
            let left = inner.end_leftovers(&placement.cell, &placement.executable);
            match left.await {
                0 => {}
                left => {
                    ended.reason = format!(
                        "{}; ended {left} processes that it left behind, run it in the foreground",
                        ended.reason
                    );
                }
            }
            inner.act(|core, now| core.exited(&service, run, &ended, now));
        });
    }

    /// Ends the processes that an executable left behind when it exited; returns their number.
    pub(super) async fn end_leftovers(
        self: &Arc<Self>,
        cell: &CellName,
        executable: &ExecutableName,
    ) -> usize {
        let (cells, its, name) = (self.cells.clone(), cell.clone(), executable.clone());
        let count = tokio::task::spawn_blocking(move || {
            let processes = cells.processes_of(&its, &name);
            processes.map_or(0, |processes| processes.len())
        });
        let count = count.await.unwrap_or(0);
        if count > 0 {
            let stopped = self.cells.stop(
                cell.clone(),
                Some(executable.clone()),
                StopOptions::default(),
            );
            if let Err(error) = stopped.await {
                let error = chain(&error);
                tracing::warn!(%executable, error, "cannot end what a service left behind");
            }
        }
        count
    }

    pub(super) fn begin_stop(self: &Arc<Self>, state: &mut State, service: ServiceName, run: u64) {
        let definition = state.core.definition(&service).cloned();
        let slot = state.slots.entry(service.clone()).or_default();
        slot.stop_failure = None;
        let (Some(definition), Some(placement)) = (definition, slot.placement.clone()) else {
            return;
        };
        let inner = Arc::clone(self);
        tokio::spawn(async move {
            let stopped = inner
                .cells
                .stop(
                    placement.cell,
                    Some(placement.executable),
                    stop_options(&definition),
                )
                .await;
            match stopped {
                // Its end is reported by an event.
                Ok(()) => {}
                Err(CellError::NoSuchCell { .. } | CellError::NoSuchExecutable { .. }) => {
                    let ended = Ended {
                        succeeded: false,
                        reason: describe(ExitStatus::Lost),
                    };
                    inner.act(|core, now| core.exited(&service, run, &ended, now));
                }
                Err(error) => {
                    let error = chain(&error);
                    tracing::error!(%service, error, "cannot stop a service");
                    let mut state = inner.state();
                    if let Some(slot) = state.slots.get_mut(&service) {
                        slot.stop_failure = Some(error);
                    }
                    drop(state);
                    inner.changed.notify_waiters();
                }
            }
        });
    }

    /// Removes what a service that is gone has left.
    pub(super) async fn forget(&self, placement: &Placement) {
        let cell = placement.cell.clone();
        let forgotten = if placement.shared().is_some() {
            let probe = self.cells.forget(cell.clone(), placement.probe.clone());
            let _ = probe.await;
            self.cells.forget(cell, placement.executable.clone()).await
        } else {
            self.cells.free(cell).await
        };
        match forgotten {
            Ok(()) | Err(CellError::NoSuchCell { .. } | CellError::AlreadyRunning { .. }) => {}
            Err(error) => {
                let error = chain(&error);
                let service = &placement.executable;
                tracing::warn!(%service, error, "cannot remove what a service has left");
            }
        }
    }
}

/// Resolves the executable; on a thread for it if that reads files.
pub(super) async fn resolve(
    definition: &Arc<Definition>,
) -> Result<mainstay_cells::ExecutableSpec, String> {
    let reads = definition.user.is_some()
        || definition.group.is_some()
        || !definition.environment_files.is_empty();
    let resolved = if reads {
        let definition = Arc::clone(definition);
        let resolved = tokio::task::spawn_blocking(move || program::resolve(&definition));
        match resolved.await {
            Ok(resolved) => resolved,
            Err(_) => return Err("reading its user and environment was interrupted".to_owned()),
        }
    } else {
        program::resolve(definition)
    };
    resolved.map_err(|error| format!("cannot start: {}", chain(&error)))
}

fn stop_options(definition: &Definition) -> StopOptions {
    StopOptions {
        signal: definition.stop_signal,
        grace: definition.stop_grace,
    }
}

/// The end of a process, for people.
pub(super) fn describe(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exited(code) => format!("exited with code {code}"),
        ExitStatus::Killed {
            signal,
            oom_killed: true,
        } => format!("OOM-killed with signal {signal}"),
        ExitStatus::Killed { signal, .. } => format!("killed with signal {signal}"),
        ExitStatus::Lost => "ended with its shim, exit code unknown".to_owned(),
    }
}
