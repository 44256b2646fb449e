//! The progress of a sequence, for its publisher.

use crate::ActorId;

/// Receives every start and stop, in order. Calls may block for one small write.
///
/// After a crash the last call may be repeated by the next daemon: each is made at least once.
pub trait Observer: Send + Sync + 'static {
    fn observe(&self, actor: &ActorId, progress: &Progress<'_>);
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress<'a> {
    SequenceStarted {
        sequence: &'a str,
    },
    SequenceStopped {
        sequence: &'a str,
    },
    SequenceFailed {
        sequence: &'a str,
        failure: &'a Failure,
    },
    PhaseStarted {
        phase: &'a str,
    },
    PhaseStopped {
        phase: &'a str,
    },
    TaskStarted {
        task: &'a str,
    },
    /// The task has ended; with the reason if it failed.
    TaskStopped {
        task: &'a str,
        error: Option<&'a str>,
    },
}

/// The end of a sequence that did not do its work.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Failure {
    pub kind: FailureKind,
    /// One line: the phase, the task and the cause.
    pub reason: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// A task failed.
    Failed,
    /// A forced sequence took its place.
    Preempted,
}
