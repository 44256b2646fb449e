//! The sequences of an upgrade and a rollback.
//!
//! A switch is recorded in the slots, then the daemon executes its own binary again. That start
//! finds a trial that is due, and runs it; the daemon after it finds the result in the slots. The
//! last task of these sequences is therefore over when there is a result, never before.

use std::sync::Arc;
use std::time::Duration;

use mainstay_error_chain::chain;
use mainstay_lifecycle::platform::BootId;
use mainstay_lifecycle::{
    ActorId, AfterCrash, Finding, Phase, Plan, Request, StartError, Task, TaskError,
};
use mainstay_slots::{Outcome, Received, Slots, SlotsError};

use super::{Arguments, Lifecycle};
use crate::engines::upgrade::formats;
use crate::handover::Program;
use crate::trial;

pub const UPGRADE: &str = "upgrade";
pub const ROLLBACK: &str = "rollback";

/// Bounds a task that reads or writes a binary.
const BINARY_TIMEOUT: Duration = Duration::from_secs(300);

/// The running binary, even after its file was replaced: it guards the trial.
const OWN_BINARY: &str = "/proc/self/exe";

#[derive(Debug, thiserror::Error)]
enum SwitchError {
    #[error(transparent)]
    Slots(#[from] SlotsError),
    #[error("{0}")]
    Returned(String),
    #[error("the daemon ended before the image was written; upgrade again")]
    Interrupted,
}

impl Lifecycle {
    /// Starts an upgrade to what was received.
    pub async fn upgrade(
        &self,
        who: String,
        received: Received,
        staged: bool,
    ) -> Result<ActorId, StartError> {
        let received = Some(Arc::new(received));
        let plan = |actor: &ActorId| self.upgrade_plan(actor, staged, received);
        self.switch(UPGRADE, who, staged, plan).await
    }

    /// Starts a rollback to the other slot.
    pub async fn roll_back(&self, who: String) -> Result<ActorId, StartError> {
        let plan = |actor: &ActorId| self.rollback_plan(actor);
        self.switch(ROLLBACK, who, false, plan).await
    }

    async fn switch(
        &self,
        sequence: &str,
        requested_by: String,
        staged: bool,
        plan: impl FnOnce(&ActorId) -> Plan,
    ) -> Result<ActorId, StartError> {
        let arguments = Arguments {
            boot: BootId::current(),
            reset: None,
            staged,
        };
        let request = Request {
            sequence: sequence.to_owned(),
            requested_by,
            forced: false,
            arguments: serde_json::to_value(&arguments).unwrap_or_default(),
        };
        self.sequences.start(request, plan).await
    }

    /// The phases before `verifyDisk` have nothing to do: workloads run on, and nothing is mounted.
    pub(super) fn upgrade_plan(
        &self,
        actor: &ActorId,
        staged: bool,
        received: Option<Arc<Received>>,
    ) -> Plan {
        let mut plan = Plan::new();
        for phase in [
            "drain",
            "leave",
            "cleanup",
            "stopServices",
            "unmount",
            "unmountSystem",
            "unmountBind",
        ] {
            plan = plan.phase(Phase::new(phase));
        }
        let plan = plan
            .phase(self.verify_phase(received.clone()))
            .phase(self.write_phase(actor, staged, received))
            .after_failure(self.cancel_task());
        match staged {
            true => plan,
            false => self.start_on_trial(plan, actor),
        }
    }

    pub(super) fn rollback_plan(&self, actor: &ActorId) -> Plan {
        let slots = self.upgrade.slots.clone();
        let request = self.upgrade.request(actor.to_string(), false);
        let flip = move || {
            let record = slots.roll_back(formats(), &request);
            record.map(|_| ()).map_err(SwitchError::from)
        };
        let check = self.recorded(actor);
        let task = Task::new("flipSlot", BINARY_TIMEOUT, || blocking(flip));
        let plan = Plan::new()
            .phase(Phase::new(ROLLBACK).task(task.after_crash(check)))
            .after_failure(self.cancel_task());
        self.start_on_trial(plan, actor)
    }

    fn verify_phase(&self, received: Option<Arc<Received>>) -> Phase {
        let slots = self.upgrade.slots.clone();
        let verify = move || match received {
            Some(received) => Ok(slots.check(&received)?),
            None => Err(SwitchError::Interrupted),
        };
        Phase::new("verifyDisk").task(Task::new("verifyImage", BINARY_TIMEOUT, || {
            blocking(verify)
        }))
    }

    fn write_phase(&self, actor: &ActorId, staged: bool, received: Option<Arc<Received>>) -> Phase {
        let slots = self.upgrade.slots.clone();
        let request = self.upgrade.request(actor.to_string(), staged);
        let write = move || match received {
            Some(received) => {
                slots.install(&received, &request)?;
                Ok(())
            }
            None => Err(SwitchError::Interrupted),
        };
        let task = Task::new("writeSlot", BINARY_TIMEOUT, || blocking(write));
        Phase::new(UPGRADE).task(task.after_crash(self.recorded(actor)))
    }

    /// Whether the switch was recorded before the last daemon ended.
    fn recorded(&self, actor: &ActorId) -> AfterCrash {
        let (slots, actor) = (self.upgrade.slots.clone(), actor.clone());
        AfterCrash::Check(Box::new(move || match slots.read() {
            Ok(record) => {
                let trial = record.as_ref().and_then(|it| it.trial.as_ref());
                let last = record.as_ref().and_then(|it| it.last.as_ref());
                let mut trials = [trial, last.map(|last| &last.trial)].into_iter().flatten();
                match trials.any(|trial| trial.actor_id == actor.as_str()) {
                    true => Finding::Done,
                    false => Finding::Failed(SwitchError::Interrupted.to_string()),
                }
            }
            Err(error) => Finding::Failed(chain(&error)),
        }))
    }

    fn cancel_task(&self) -> Task {
        let slots = self.upgrade.slots.clone();
        Task::new("cancelTrial", BINARY_TIMEOUT, || {
            blocking(move || Ok(slots.cancel_trial()?))
        })
    }

    fn start_on_trial(&self, plan: Plan, actor: &ActorId) -> Plan {
        let check = {
            let (slots, actor) = (self.upgrade.slots.clone(), actor.clone());
            move || match result(&slots, &actor) {
                Ok(Some(())) => Finding::Done,
                Ok(None) => Finding::NotDone,
                Err(error) => Finding::Failed(chain(&error)),
            }
        };
        let (slots, actor) = (self.upgrade.slots.clone(), actor.clone());
        let (cells, services) = (self.cells.clone(), self.services.clone());
        let process = self.process.clone();
        let work = move || async move {
            let decided = tokio::task::spawn_blocking(move || {
                let result = result(&slots, &actor)?;
                if result.is_none() {
                    slots.write_expected(&trial::running([&cells, services.cells()]))?;
                }
                Ok::<_, SwitchError>(result)
            });
            if decided.await??.is_some() {
                return Ok(());
            }
            process.replace(Program::At(OWN_BINARY.into()));
            // The daemon after the trial reports the end.
            std::future::pending().await
        };
        let deadline = self.platform.end_timeout();
        let task = Task::new("startOnTrial", deadline, work);
        let task = task.after_crash(AfterCrash::Check(Box::new(check)));
        plan.phase(Phase::new("stopEverything"))
            .phase(Phase::new("reboot").task(task))
    }
}

/// The result of the trial; `None` if there is none yet.
fn result(slots: &Slots, actor: &ActorId) -> Result<Option<()>, SwitchError> {
    match slots.outcome(actor.as_str())? {
        None => Ok(None),
        Some(Outcome::Kept) => Ok(Some(())),
        Some(Outcome::Returned { reason }) => Err(SwitchError::Returned(reason)),
    }
}

async fn blocking(
    work: impl FnOnce() -> Result<(), SwitchError> + Send + 'static,
) -> Result<(), TaskError> {
    Ok(tokio::task::spawn_blocking(work).await??)
}
