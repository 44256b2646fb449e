//! The record of a sequence: what was asked, and how far it has come.

use serde::{Deserialize, Serialize};

use crate::{ActorId, Failure, Plan};

/// The format version of the record.
pub(crate) const FORMAT_VERSION: u64 = 1;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SequenceRecord {
    /// The name of the sequence, such as `reboot`.
    pub sequence: String,
    pub actor: ActorId,
    pub requested_by: String,
    #[serde(default)]
    pub forced: bool,
    /// The arguments from which the next daemon builds the same plan.
    #[serde(default)]
    pub arguments: serde_json::Value,
    /// How many daemons have resumed it.
    #[serde(default)]
    pub resumes: u32,
    pub phases: Vec<PhaseRecord>,
    /// Set when the sequence has ended.
    #[serde(default)]
    pub ended: Option<Ended>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// None if the sequence did its work.
    pub failure: Option<Failure>,
    /// Whether the end was published.
    pub published: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseRecord {
    pub name: String,
    pub tasks: Vec<TaskRecord>,
    /// Whether the phase has ended.
    #[serde(default)]
    pub done: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskRecord {
    pub name: String,
    pub state: TaskState,
    /// Set if the task failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TaskState {
    Pending,
    Started,
    Done,
    Failed,
    /// Ended with its phase because another task failed.
    Cancelled,
}

impl PhaseRecord {
    pub(crate) fn of(plan: &Plan) -> Vec<Self> {
        let phase = |phase: &crate::Phase| Self {
            name: phase.name.clone(),
            tasks: phase
                .tasks
                .iter()
                .map(|task| TaskRecord {
                    name: task.name.clone(),
                    state: TaskState::Pending,
                    error: None,
                })
                .collect(),
            done: false,
        };
        plan.phases.iter().map(phase).collect()
    }
}

impl SequenceRecord {
    /// Returns whether `plan` has the same phases and tasks as the record.
    pub(crate) fn fits(&self, plan: &Plan) -> bool {
        let names = |phases: &[PhaseRecord]| -> Vec<(String, Vec<String>)> {
            let tasks = |phase: &PhaseRecord| phase.tasks.iter().map(|t| t.name.clone()).collect();
            phases
                .iter()
                .map(|phase| (phase.name.clone(), tasks(phase)))
                .collect()
        };
        names(&self.phases) == names(&PhaseRecord::of(plan))
    }
}
