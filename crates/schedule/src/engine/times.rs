//! The task that waits for the next time of all timers.

use std::sync::{Arc, Weak};

use jiff::Timestamp;
use mainstay_error_chain::chain;
use tracing::error;

use super::clock::{Clock, Woken};
use super::runs::First;
use super::{Change, Inner, Runner, Slot, runs};
use crate::ScheduleName;

/// Runs until the engine is dropped.
pub(super) async fn run<R: Runner>(inner: Weak<Inner<R>>, clock: Clock) {
    // Times that passed before the start were not waited for.
    let mut woken = Woken::Jumped;
    loop {
        let Some(strong) = inner.upgrade() else {
            return;
        };
        let (next, changes) = take_due(&strong, Timestamp::now(), woken);
        for change in changes {
            strong.publish(change).await;
        }
        woken = tokio::select! {
            woken = clock.wait_until(next) => match woken {
                Ok(woken) => woken,
                Err(why) => {
                    error!(error = chain(&why), "schedules stopped: the system's timer failed");
                    return;
                }
            },
            () = strong.changed.notified() => Woken::Due,
        };
    }
}

/// Begins every run that is due, and returns the next time of all.
fn take_due<R: Runner>(
    inner: &Arc<Inner<R>>,
    now: Timestamp,
    woken: Woken,
) -> (Option<Timestamp>, Vec<Change>) {
    let mut begun = Vec::new();
    let mut changes = Vec::new();
    let mut state = inner.state();
    let held = state.held;
    for (name, slot) in &mut state.slots {
        let due = match woken {
            Woken::Due => slot.is_due(now),
            Woken::Jumped => slot.is_owed(name, now, &mut changes),
        };
        if due.is_some() || woken == Woken::Jumped || slot.next.is_none() {
            slot.set_next(now);
        }
        if due == Some(true) && !held {
            if slot.worker {
                slot.skipped += 1;
                changes.push(Change::Skipped { name: name.clone() });
            } else {
                slot.worker = true;
                begun.push(slot.job(name));
            }
        }
        if due.is_some() {
            slot.considered = now;
            inner.save(slot);
        }
    }
    let next = state.slots.values().filter_map(|slot| slot.next).min();
    drop(state);
    for job in begun {
        runs::spawn(inner, job, First::Due);
    }
    (next, changes)
}

impl<W> Slot<W> {
    /// Sets the next time, with jitter.
    pub(super) fn set_next(&mut self, now: Timestamp) {
        let timer = self.entry.timer.as_ref().filter(|_| self.enabled);
        self.next = timer.and_then(|timer| {
            let next = timer.next(self.anchor, now)?;
            Some(timer.delayed(next))
        });
    }

    /// Returns `Some(true)` if a run is due.
    fn is_due(&self, now: Timestamp) -> Option<bool> {
        self.next.is_some_and(|next| next <= now).then_some(true)
    }

    /// After a start or a jump of the clock: `Some(true)` if a run makes up for missed times.
    fn is_owed(
        &mut self,
        name: &ScheduleName,
        now: Timestamp,
        changes: &mut Vec<Change>,
    ) -> Option<bool> {
        let timer = self.entry.timer.as_ref().filter(|_| self.enabled)?;
        let due = timer.next(self.anchor, self.considered)?;
        if due > now {
            // Also after the clock was set back: what has run is not run again.
            self.considered = self.considered.min(now);
            return None;
        }
        let made_up = timer.catch_up;
        self.missed += 1;
        changes.push(Change::Missed {
            name: name.clone(),
            made_up,
        });
        Some(made_up)
    }
}
