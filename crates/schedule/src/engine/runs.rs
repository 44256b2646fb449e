//! Runs: of timers, once; of what is kept running, again and again with a growing delay.
//!
//! At most one task, the worker, works for a schedule. It looks at the schedule anew before every
//! run, so that a change takes effect with the next one.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::Notify;

use super::{Begun, Change, Ended, FinishedRun, Inner, MAX_RUNS, Runner, nanos};
use crate::{Entry, ScheduleName};

/// The delay before a restart, doubled with every run that ends soon.
const FIRST_DELAY: Duration = Duration::from_millis(100);
const MAX_DELAY: Duration = Duration::from_secs(60);
/// A run at least this long starts over with the first delay.
const RESET_AFTER: Duration = Duration::from_secs(60);

/// The schedule that a worker works for: another one of the same name has another id.
#[derive(Debug, Clone)]
pub(super) struct Job {
    pub(super) name: ScheduleName,
    pub(super) id: u64,
}

/// A worker's first run.
pub(super) enum First {
    /// A run if the schedule asks for one.
    AsScheduled,
    /// A run that is due.
    Due,
    /// A run that an earlier daemon began.
    Adopted(Begun),
}

/// Takes over what an earlier daemon started, and starts what is kept running.
pub(super) fn resume<R: Runner>(inner: &Arc<Inner<R>>) {
    let mut adopted = Vec::new();
    {
        let mut state = inner.state();
        for (name, slot) in &mut state.slots {
            if let Some(begun) = slot.running.clone() {
                slot.worker = true;
                adopted.push((slot.job(name), begun));
            }
        }
    }
    for (job, begun) in adopted {
        spawn(inner, job, First::Adopted(begun));
    }
    keep_all(inner);
}

/// Keeps everything running that is to be kept.
pub(super) fn keep_all<R: Runner>(inner: &Arc<Inner<R>>) {
    let names: Vec<ScheduleName> = inner.state().slots.keys().cloned().collect();
    for name in names {
        keep(inner, &name);
    }
}

/// Keeps the work of a schedule running, if it is to be kept and no worker does so already.
pub(super) fn keep<R: Runner>(inner: &Arc<Inner<R>>, name: &ScheduleName) {
    let job = {
        let mut state = inner.state();
        let held = state.held;
        let Some(slot) = state.slots.get_mut(name) else {
            return;
        };
        if held || !slot.is_kept() || slot.worker {
            slot.wake.notify_one();
            return;
        }
        slot.worker = true;
        slot.job(name)
    };
    spawn(inner, job, First::AsScheduled);
}

pub(super) fn spawn<R: Runner>(inner: &Arc<Inner<R>>, job: Job, first: First) {
    tokio::spawn(work(Arc::clone(inner), job, first));
}

async fn work<R: Runner>(inner: Arc<Inner<R>>, job: Job, mut first: First) {
    let mut soon = 0_u32;
    loop {
        let is_due = !matches!(first, First::AsScheduled);
        let Some((entry, wake)) = next_run(&inner, &job, is_due) else {
            return;
        };
        let ran_for = match std::mem::replace(&mut first, First::AsScheduled) {
            First::Adopted(begun) => until_ended(&inner, &job, &entry, begun).await,
            First::Due => run(&inner, &job, &entry).await,
            First::AsScheduled => match inner.runner.running(&entry.work) {
                // Started by hand, or before a crash.
                Some(begun) => {
                    started(&inner, &job, &begun).await;
                    until_ended(&inner, &job, &entry, begun).await
                }
                None => run(&inner, &job, &entry).await,
            },
        };
        if entry.timer.is_none() {
            soon = if ran_for >= RESET_AFTER { 0 } else { soon };
            let delay = FIRST_DELAY.saturating_mul(1 << soon.min(16)).min(MAX_DELAY);
            soon = soon.saturating_add(1);
            // Ends early when the schedule changes.
            let _ = tokio::time::timeout(delay, wake.notified()).await;
        }
    }
}

/// The entry to run, and what ends a wait after it early.
type NextRun<W> = (Arc<Entry<W>>, Arc<Notify>);

/// Returns the entry to run, or ends the worker.
fn next_run<R: Runner>(inner: &Inner<R>, job: &Job, is_due: bool) -> Option<NextRun<R::Work>> {
    let mut state = inner.state();
    let held = state.held;
    let slot = state.slots.get_mut(&job.name);
    let slot = slot.filter(|slot| slot.id == job.id)?;
    if is_due || (slot.is_kept() && !held) {
        return Some((Arc::clone(&slot.entry), Arc::clone(&slot.wake)));
    }
    slot.worker = false;
    None
}

/// Starts the work and waits for its end. Returns how long it ran.
async fn run<R: Runner>(inner: &Arc<Inner<R>>, job: &Job, entry: &Entry<R::Work>) -> Duration {
    let now = nanos(Timestamp::now());
    match inner.runner.start(&entry.work).await {
        Ok(begun) => {
            if !started(inner, job, &begun).await {
                // Destroyed meanwhile.
                let _ = inner.runner.stop(&entry.work).await;
                return Duration::ZERO;
            }
            until_ended(inner, job, entry, begun).await
        }
        Err(reason) => {
            let begun = Begun {
                pid: 0,
                started: now,
            };
            let ended = Ended {
                at: nanos(Timestamp::now()),
                succeeded: false,
                result: format!("not started: {reason}"),
            };
            finished(inner, job, begun, ended).await;
            Duration::ZERO
        }
    }
}

/// Notes the start; returns false if the schedule is gone.
async fn started<R: Runner>(inner: &Arc<Inner<R>>, job: &Job, begun: &Begun) -> bool {
    let there = inner.change(job, |slot| slot.running = Some(begun.clone()));
    if there {
        // A daemon that is killed after the event still knows of the run. Errors are logged.
        let _ = inner.store.written(None).await;
        let (name, pid) = (job.name.clone(), begun.pid);
        inner.publish(Change::Started { name, pid }).await;
    }
    there
}

/// Waits for the end of a run, or stops it after its timeout.
async fn until_ended<R: Runner>(
    inner: &Arc<Inner<R>>,
    job: &Job,
    entry: &Entry<R::Work>,
    begun: Begun,
) -> Duration {
    let timeout = entry.timer.as_ref().and_then(|timer| timer.timeout);
    let ends = inner.runner.until_ended(&entry.work, &begun);
    let ended = match timeout {
        None => ends.await,
        Some(limit) => {
            // Also of a run that an earlier daemon began.
            let passed = nanos(Timestamp::now()).saturating_sub(begun.started);
            let passed = Duration::from_nanos(u64::try_from(passed).unwrap_or(0));
            match tokio::time::timeout(limit.saturating_sub(passed), ends).await {
                Ok(ended) => ended,
                Err(_) => stopped(inner, entry, &begun, limit).await,
            }
        }
    };
    let ran_for = ended.at.saturating_sub(begun.started);
    finished(inner, job, begun, ended).await;
    Duration::from_nanos(u64::try_from(ran_for).unwrap_or(0))
}

async fn stopped<R: Runner>(
    inner: &Inner<R>,
    entry: &Entry<R::Work>,
    begun: &Begun,
    limit: Duration,
) -> Ended {
    if let Err(reason) = inner.runner.stop(&entry.work).await {
        return Ended {
            at: nanos(Timestamp::now()),
            succeeded: false,
            result: format!("not stopped after the timeout of {limit:?}: {reason}"),
        };
    }
    let ended = inner.runner.until_ended(&entry.work, begun).await;
    Ended {
        succeeded: false,
        result: format!("stopped after the timeout of {limit:?}: {}", ended.result),
        ..ended
    }
}

async fn finished<R: Runner>(inner: &Arc<Inner<R>>, job: &Job, begun: Begun, ended: Ended) {
    let run = FinishedRun {
        begun,
        ended: ended.clone(),
    };
    let there = inner.change(job, |slot| {
        slot.running = None;
        slot.runs.insert(0, run);
        slot.runs.truncate(MAX_RUNS);
    });
    if there {
        let name = job.name.clone();
        inner.publish(Change::Ended { name, ended }).await;
    }
}
