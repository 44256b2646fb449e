//! Requests: enable, disable, destroy, and run now.

use jiff::Timestamp;

use super::runs::First;
use super::{Change, MAX_SCHEDULES, Runner, ScheduleError, Schedules, Slot, Status, runs};
use crate::{Entry, ScheduleName};

/// The size of an entry as JSON.
const MAX_ENTRY_BYTES: usize = 128 << 10;

impl<R: Runner> Schedules<R> {
    /// Creates a schedule, or replaces one; a new definition takes effect with the next run.
    pub async fn enable(&self, entry: Entry<R::Work>) -> Result<Status<R::Work>, ScheduleError> {
        let now = Timestamp::now();
        if let Some(timer) = &entry.timer {
            timer.check(now)?;
        }
        let bytes = serde_json::to_vec(&entry).map_or(usize::MAX, |entry| entry.len());
        if bytes > MAX_ENTRY_BYTES {
            let max = MAX_ENTRY_BYTES;
            return Err(ScheduleError::TooLarge { bytes, max });
        }
        let name = entry.name.clone();
        {
            let mut state = self.0.state();
            let count = state.slots.len();
            match state.slots.get_mut(&name) {
                Some(slot) => {
                    if slot.entry.timer != entry.timer {
                        slot.anchor = now;
                    }
                    slot.entry = entry.into();
                    slot.resume(now);
                }
                None if count >= MAX_SCHEDULES => {
                    return Err(ScheduleError::TooMany { max: MAX_SCHEDULES });
                }
                None => {
                    state.slots.insert(name.clone(), Slot::new(entry, now));
                }
            }
        }
        self.enabled(&name).await
    }

    /// Enables a schedule that exists.
    pub async fn resume(&self, name: &str) -> Result<Status<R::Work>, ScheduleError> {
        let name = self.0.state().named(name)?;
        if let Some(slot) = self.0.state().slots.get_mut(&name) {
            slot.resume(Timestamp::now());
        }
        self.enabled(&name).await
    }

    async fn enabled(&self, name: &ScheduleName) -> Result<Status<R::Work>, ScheduleError> {
        self.0
            .changed_slot(name, |slot| slot.set_next(Timestamp::now()));
        runs::keep(&self.0, name);
        self.0.changed.notify_one();
        let name = name.clone();
        self.0.publish(Change::Enabled { name: name.clone() }).await;
        self.settled(&name).await
    }

    /// Starts nothing by a schedule any more; what runs, runs on.
    pub async fn disable(&self, name: &str) -> Result<Status<R::Work>, ScheduleError> {
        let name = self.0.state().named(name)?;
        self.0.changed_slot(&name, |slot| {
            slot.enabled = false;
            slot.next = None;
            slot.wake.notify_one();
        });
        self.0
            .publish(Change::Disabled { name: name.clone() })
            .await;
        self.settled(&name).await
    }

    /// Removes a schedule and stops what runs by it.
    pub async fn destroy(&self, name: &str) -> Result<(), ScheduleError> {
        let name = self.0.state().named(name)?;
        let removed = self.0.state().slots.remove(&name);
        let Some(slot) = removed else {
            return Err(not_found(&name.to_string()));
        };
        slot.wake.notify_one();
        self.0.store.remove(&name);
        let stopped = match slot.worker {
            false => Ok(()),
            true => self.0.runner.stop(&slot.entry.work).await,
        };
        let destroyed = Change::Destroyed { name: name.clone() };
        self.0.publish(destroyed).await;
        self.written(&name).await?;
        stopped.map_err(|reason| ScheduleError::NotStopped {
            name: name.to_string(),
            reason,
        })
    }

    /// Runs what a timer is for now.
    pub async fn run(&self, name: &str) -> Result<Status<R::Work>, ScheduleError> {
        let job = {
            let mut state = self.0.state();
            let name = state.named(name)?;
            if state.held {
                return Err(ScheduleError::Held);
            }
            let slot = state.slots.get_mut(&name);
            let slot = slot.ok_or_else(|| not_found(&name.to_string()))?;
            if slot.entry.timer.is_none() {
                let name = name.to_string();
                return Err(ScheduleError::NoTimer { name });
            }
            if slot.worker {
                let name = name.to_string();
                return Err(ScheduleError::AlreadyRunning { name });
            }
            slot.worker = true;
            slot.job(&name)
        };
        let name = job.name.clone();
        runs::spawn(&self.0, job, First::Due);
        self.settled(&name).await
    }

    /// Returns a schedule once it is on disk.
    async fn settled(&self, name: &ScheduleName) -> Result<Status<R::Work>, ScheduleError> {
        self.written(name).await?;
        let status = self.0.state().slots.get(name).map(Slot::status);
        status.ok_or_else(|| not_found(&name.to_string()))
    }

    async fn written(&self, name: &ScheduleName) -> Result<(), ScheduleError> {
        let written = self.0.store.written(Some(name)).await;
        written.map_err(|source| ScheduleError::NotWritten {
            name: name.to_string(),
            source,
        })
    }
}

impl<R: Runner> super::Inner<R> {
    /// Changes a slot and queues its record.
    pub(super) fn changed_slot(
        &self,
        name: &ScheduleName,
        change: impl FnOnce(&mut Slot<R::Work>),
    ) {
        let mut state = self.state();
        if let Some(slot) = state.slots.get_mut(name) {
            change(slot);
            self.save(slot);
        }
    }
}

impl<W> super::State<W> {
    fn named(&self, name: &str) -> Result<ScheduleName, ScheduleError> {
        let parsed: ScheduleName = name.parse()?;
        match self.slots.contains_key(&parsed) {
            true => Ok(parsed),
            false => Err(not_found(name)),
        }
    }
}

impl<W> Slot<W> {
    /// Enables it; times that passed while it was disabled are not owed.
    fn resume(&mut self, now: Timestamp) {
        if !self.enabled {
            self.considered = now;
        }
        self.enabled = true;
    }
}

fn not_found(name: &str) -> ScheduleError {
    let name = name.to_owned();
    ScheduleError::NotFound { name }
}
