//! One service inside the core.

use std::sync::Arc;
use std::time::Duration;

use super::state::{Health, State};
use crate::{Definition, RestartPolicy};

/// The process of a service, as far as the core knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Process {
    None,
    Launching,
    Running { since: Duration },
    Terminating,
}

#[derive(Debug)]
pub struct Unit {
    pub definition: Arc<Definition>,
    /// Takes the place of `definition` once no process is left.
    pub replacement: Option<Arc<Definition>>,
    pub removed: bool,
    /// Whether it is to be up.
    pub wanted: bool,
    /// Another run follows the one that is being ended.
    pub restarting: bool,
    /// Has ended for good; only a request starts it again.
    pub done: bool,
    pub process: Process,
    /// The number of the latest run.
    pub run: u64,
    pub state: State,
    pub message: String,
    pub health: Health,
    /// Runs in a row that ended by themselves too soon.
    pub failures: u32,
    pub back_off_timer: Option<u64>,
    pub health_timer: Option<u64>,
}

impl Unit {
    pub fn new(definition: Arc<Definition>) -> Self {
        Self {
            definition,
            replacement: None,
            removed: false,
            wanted: false,
            restarting: false,
            done: false,
            process: Process::None,
            run: 0,
            state: State::Initialized,
            message: String::new(),
            health: Health::Unknown,
            failures: 0,
            back_off_timer: None,
            health_timer: None,
        }
    }

    pub fn has_process(&self) -> bool {
        self.process != Process::None
    }

    /// Whether services that depend on it may start.
    pub fn is_up(&self) -> bool {
        match self.state {
            // Between two runs it is finished too, but not done.
            State::Finished => self.wanted && self.done,
            // Of a oneshot only the end counts.
            State::Running if self.definition.oneshot => false,
            State::Running => self.definition.health.is_none() || self.health == Health::Healthy,
            _ => false,
        }
    }

    /// Whether nothing more will happen to it by itself.
    pub fn is_settled(&self) -> bool {
        let changing = self.wanted && (self.restarting || self.replacement.is_some());
        let at_rest = !self.has_process() && (!self.wanted || self.done);
        !changing && (self.is_up() || at_rest)
    }

    /// Whether its process is to end, for reasons of its own.
    pub fn is_going_down(&self) -> bool {
        !self.wanted || self.removed || self.restarting || self.replacement.is_some()
    }

    /// Whether it is started again after a run that ended by itself.
    pub fn restarts_after(&self, succeeded: bool) -> bool {
        match self.definition.restart {
            _ if self.definition.oneshot && succeeded => false,
            RestartPolicy::Always => true,
            RestartPolicy::OnFailure => !succeeded,
            RestartPolicy::Never => false,
        }
    }
}
