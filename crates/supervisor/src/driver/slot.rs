//! One service as the driver knows it, beside what the core knows.

use std::collections::VecDeque;

use mainstay_cells::{ExitStatus, Run};
use mainstay_journal::Timestamp;

use crate::core::{Change, Health, State};
use crate::program::Placement;

/// The changes that are kept of each service.
const MAX_HISTORY: usize = 64;

/// A change in the life of a service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistoryEntry {
    pub at: Timestamp,
    pub state: State,
    pub message: String,
}

#[derive(Debug, Default)]
pub struct Slot {
    /// Of the latest run.
    pub placement: Option<Placement>,
    /// The process that runs now.
    pub process: Option<Process>,
    /// The end of a run whose start is still to be reported, by its start time.
    pub early_end: Option<(i64, ExitStatus)>,
    pub history: VecDeque<HistoryEntry>,
    pub health: Health,
    pub health_changed: Option<Timestamp>,
    /// Why the process could not be stopped.
    pub stop_failure: Option<String>,
}

/// A process of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process {
    pub pid: i32,
    /// Identifies the run.
    pub started: i64,
}

impl From<Run> for Process {
    fn from(run: Run) -> Self {
        Self {
            pid: run.pid,
            started: run.started,
        }
    }
}

impl Slot {
    pub fn record(&mut self, change: &Change) {
        let at = Timestamp::now();
        if self.health != change.health {
            self.health = change.health.clone();
            self.health_changed = Some(at);
        }
        let last = self.history.back();
        if last.is_some_and(|last| last.state == change.state && last.message == change.message) {
            // Only the health has changed.
            return;
        }
        if self.history.len() >= MAX_HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(HistoryEntry {
            at,
            state: change.state,
            message: change.message.clone(),
        });
    }
}
