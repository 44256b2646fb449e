//! The work of a sequence: phases one after another, the tasks of a phase in parallel.

use std::fmt;
use std::pin::Pin;
use std::time::Duration;

/// The reason a task failed.
pub type TaskError = Box<dyn std::error::Error + Send + Sync>;

type Work = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;

/// The rule by which the next daemon handles a task that the last one had started and not finished.
pub enum AfterCrash {
    /// Runs it again: the task is idempotent.
    Again,
    /// Fails the sequence: the task must not run twice.
    Never,
    /// Asks whether the work was done.
    Check(Box<dyn FnOnce() -> Finding + Send>),
}

/// The state in which a check found the work of an interrupted task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finding {
    Done,
    /// Run the task again.
    NotDone,
    /// Fail the sequence for this reason.
    Failed(String),
}

/// One task. It has a deadline, and a name that clients know.
pub struct Task {
    pub(crate) name: String,
    pub(crate) deadline: Duration,
    pub(crate) after_crash: AfterCrash,
    pub(crate) tolerated: bool,
    pub(crate) work: Box<dyn FnOnce() -> Work + Send>,
}

impl Task {
    /// Creates a task that is run again after a crash.
    pub fn new<F>(
        name: impl Into<String>,
        deadline: Duration,
        work: impl FnOnce() -> F + Send + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), TaskError>> + Send + 'static,
    {
        Self {
            name: name.into(),
            deadline,
            after_crash: AfterCrash::Again,
            tolerated: false,
            work: Box::new(|| Box::pin(work())),
        }
    }

    #[must_use]
    pub fn after_crash(mut self, rule: AfterCrash) -> Self {
        self.after_crash = rule;
        self
    }

    /// Continues the sequence if the task fails or exceeds its deadline; the failure is reported.
    #[must_use]
    pub fn tolerated(mut self) -> Self {
        self.tolerated = true;
        self
    }

    /// Tolerates failures of a forced sequence.
    #[must_use]
    pub fn tolerated_if(mut self, forced: bool) -> Self {
        self.tolerated |= forced;
        self
    }
}

/// A phase. One without tasks starts and stops and does nothing.
#[derive(Debug)]
pub struct Phase {
    pub(crate) name: String,
    pub(crate) tasks: Vec<Task>,
}

impl Phase {
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            tasks: Vec::new(),
        }
    }

    #[must_use]
    pub fn task(mut self, task: Task) -> Self {
        self.tasks.push(task);
        self
    }
}

/// All phases of a sequence.
#[derive(Debug, Default)]
pub struct Plan {
    pub(crate) phases: Vec<Phase>,
    pub(crate) after_failure: Option<Task>,
}

impl Plan {
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn phase(mut self, phase: Phase) -> Self {
        self.phases.push(phase);
        self
    }

    /// Adds a task that runs when a task has failed: it returns to service what the phases before
    /// have stopped. A forced sequence that takes over does not run it.
    #[must_use]
    pub fn after_failure(mut self, task: Task) -> Self {
        self.after_failure = Some(task);
        self
    }
}

impl fmt::Debug for AfterCrash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Again => "Again",
            Self::Never => "Never",
            Self::Check(_) => "Check",
        })
    }
}

impl fmt::Debug for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Task")
            .field("name", &self.name)
            .field("deadline", &self.deadline)
            .field("after_crash", &self.after_crash)
            .field("tolerated", &self.tolerated)
            .finish_non_exhaustive()
    }
}
