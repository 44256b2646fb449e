//! Events of sequences, with the actor who asked for them.

use mainstay_api::common::{Code, Error};
use mainstay_api::machine::{
    PhaseEvent, SequenceEvent, TaskEvent, phase_event, sequence_event, task_event,
};
use mainstay_error_chain::chain;
use mainstay_journal::EventStore;
use mainstay_lifecycle::{ActorId, Failure, FailureKind, Observer, Progress};
use prost::{Message, Name};
use tracing::error;

use crate::actor_tag;
use crate::engines::schedule::Schedule;
use crate::engines::services::Services;

/// Publishes to the event store, and starts the services again when a sequence has failed.
#[derive(Debug)]
pub struct SequenceEvents {
    store: EventStore,
    services: Services,
    schedule: Schedule,
}

impl SequenceEvents {
    pub fn new(store: EventStore, services: Services, schedule: Schedule) -> Self {
        Self {
            store,
            services,
            schedule,
        }
    }

    fn publish<M: Message + Name>(&self, actor: &ActorId, event: &M) {
        let mut payload = event.encode_to_vec();
        actor_tag::append(&mut payload, actor.as_str());
        if let Err(why) = self.store.publish(&M::full_name(), &payload) {
            // A full disk must not keep the node from rebooting.
            error!(%actor, error = chain(&why), "event dropped");
        }
    }

    fn sequence(
        &self,
        actor: &ActorId,
        sequence: &str,
        action: sequence_event::Action,
        failure: Option<&Failure>,
    ) {
        let event = SequenceEvent {
            sequence: sequence.to_owned(),
            action: action.into(),
            error: failure.map(|failure| Error {
                code: match failure.kind {
                    FailureKind::Failed => Code::Fatal,
                    FailureKind::Preempted => Code::Canceled,
                }
                .into(),
                message: failure.reason.clone(),
                details: Vec::new(),
            }),
        };
        self.publish(actor, &event);
    }

    fn phase(&self, actor: &ActorId, phase: &str, action: phase_event::Action) {
        let event = PhaseEvent {
            phase: phase.to_owned(),
            action: action.into(),
        };
        self.publish(actor, &event);
    }

    fn task(&self, actor: &ActorId, task: &str, action: task_event::Action) {
        let event = TaskEvent {
            task: task.to_owned(),
            action: action.into(),
        };
        self.publish(actor, &event);
    }
}

impl Observer for SequenceEvents {
    fn observe(&self, actor: &ActorId, progress: &Progress<'_>) {
        use sequence_event::Action as Sequence;
        match *progress {
            Progress::SequenceStarted { sequence } => {
                self.sequence(actor, sequence, Sequence::Start, None);
            }
            Progress::SequenceStopped { sequence } => {
                self.sequence(actor, sequence, Sequence::Stop, None);
            }
            Progress::SequenceFailed { sequence, failure } => {
                self.sequence(actor, sequence, Sequence::Noop, Some(failure));
                // The node goes on, unless another sequence has taken over.
                if self.services.is_held() && failure.kind == FailureKind::Failed {
                    self.services.start_all();
                    self.schedule.hold(false);
                }
            }
            Progress::PhaseStarted { phase } => {
                self.phase(actor, phase, phase_event::Action::Start);
            }
            Progress::PhaseStopped { phase } => {
                self.phase(actor, phase, phase_event::Action::Stop);
            }
            Progress::TaskStarted { task } => self.task(actor, task, task_event::Action::Start),
            // The event has no field for the error; that of the sequence, and the log, have it.
            Progress::TaskStopped { task, .. } => {
                self.task(actor, task, task_event::Action::Stop);
            }
        }
    }
}
