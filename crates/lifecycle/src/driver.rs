//! The run of one sequence: phase by phase, recorded and published.

use std::sync::{Arc, Mutex};

use mainstay_error_chain::chain;
use tokio::task::JoinSet;
use tracing::{error, info, warn};

use crate::observer::{Failure, FailureKind, Progress};
use crate::plan::{AfterCrash, Finding, Phase, Plan, Task, TaskError};
use crate::record::{Ended, SequenceRecord, TaskState};
use crate::sequences::{Inner, end_of, lock};
use crate::store::Writer;

pub(crate) struct Driver {
    inner: Arc<Inner>,
    slot: u64,
    writer: Writer,
    record: SequenceRecord,
    shared: Arc<Mutex<SequenceRecord>>,
}

/// The reason a phase, and so the sequence, failed.
type Reason = String;

impl Driver {
    pub(crate) fn new(
        inner: Arc<Inner>,
        slot: u64,
        writer: Writer,
        record: SequenceRecord,
    ) -> Self {
        let shared = Arc::new(Mutex::new(record.clone()));
        Self {
            inner,
            slot,
            writer,
            record,
            shared,
        }
    }

    /// The record as it changes, for status.
    pub(crate) fn shared(&self) -> Arc<Mutex<SequenceRecord>> {
        Arc::clone(&self.shared)
    }

    pub(crate) async fn run(mut self, plan: Plan) {
        info!(
            sequence = self.record.sequence,
            actor = %self.record.actor,
            requested_by = self.record.requested_by,
            resumes = self.record.resumes,
            "sequence started"
        );
        let sequence = self.record.sequence.clone();
        self.publish(move |publish| {
            publish(&Progress::SequenceStarted {
                sequence: &sequence,
            });
        })
        .await;
        let mut failure = None;
        for (index, phase) in plan.phases.into_iter().enumerate() {
            if self.record.phases[index].done {
                continue;
            }
            let name = phase.name.clone();
            let failed = self.phase(index, phase).await.err();
            self.record.phases[index].done = failed.is_none();
            let stopped = name.clone();
            self.publish(move |publish| publish(&Progress::PhaseStopped { phase: &stopped }))
                .await;
            if let Some(reason) = failed {
                failure = Some(Failure {
                    kind: FailureKind::Failed,
                    reason: format!("phase {name}: {reason}"),
                });
                break;
            }
        }
        if let (Some(_), Some(task)) = (&failure, plan.after_failure) {
            let name = task.name.clone();
            if let Err(why) = perform(task).await {
                error!(task = name, error = why, "cannot return to service");
            }
        }
        self.end(failure).await;
    }

    /// Records and publishes the end.
    pub(crate) async fn end(&mut self, failure: Option<Failure>) {
        let SequenceRecord {
            sequence, actor, ..
        } = &self.record;
        match &failure {
            None => info!(sequence, %actor, "sequence done"),
            Some(failure) => error!(sequence, %actor, reason = failure.reason, "sequence failed"),
        }
        self.record.ended = Some(Ended {
            failure: failure.clone(),
            published: false,
        });
        if let Err(error) = self.write().await {
            warn!(%error, "cannot record the end of the sequence; removing its record");
            // A record without an end would be resumed by the next daemon. Removal needs no room.
            self.writer.remove().await;
        }
        let sequence = self.record.sequence.clone();
        self.inner.set_ending(self.slot);
        self.publish(move |publish| publish(&end_of(&sequence, failure.as_ref())))
            .await;
        if let Some(ended) = &mut self.record.ended {
            ended.published = true;
        }
        // If this fails, the next daemon publishes the end again.
        let _ = self.write().await;
        self.inner.release(self.slot);
    }

    async fn phase(&mut self, index: usize, phase: Phase) -> Result<(), Reason> {
        let name = phase.name.clone();
        info!(phase = name, "phase started");
        self.publish(move |publish| publish(&Progress::PhaseStarted { phase: &name }))
            .await;
        let tasks = self.unfinished(index, phase.tasks).await?;
        if tasks.is_empty() {
            return Ok(());
        }
        for (task, _) in &tasks {
            self.record.phases[index].tasks[*task].state = TaskState::Started;
        }
        self.write_or_fail().await?;
        let mut running = JoinSet::new();
        let mut started = Vec::new();
        for (task, work) in tasks {
            let name = work.name.clone();
            info!(task = name, "task started");
            self.publish({
                let name = name.clone();
                move |publish| publish(&Progress::TaskStarted { task: &name })
            })
            .await;
            started.push((task, name, work.tolerated));
            running.spawn(async move { (task, perform(work).await) });
        }
        while let Some(ended) = running.join_next().await {
            // `perform` catches panics, and nothing else cancels these tasks.
            let Ok((task, result)) = ended else { continue };
            let Some(position) = started.iter().position(|(it, ..)| *it == task) else {
                continue;
            };
            let (_, name, tolerated) = started.swap_remove(position);
            let error = result.err();
            let state = match error {
                None => TaskState::Done,
                Some(_) => TaskState::Failed,
            };
            let recorded = self.task_ended(index, task, state, error.clone()).await;
            match error {
                Some(reason) if !tolerated => {
                    self.cancel(index, running, started).await;
                    return Err(format!("task {name}: {reason}"));
                }
                _ => recorded?,
            }
        }
        Ok(())
    }

    /// Returns the tasks that remain to be run, after the rules for those that the last daemon had
    /// started.
    async fn unfinished(
        &mut self,
        index: usize,
        tasks: Vec<Task>,
    ) -> Result<Vec<(usize, Task)>, Reason> {
        let mut unfinished = Vec::new();
        for (number, mut task) in tasks.into_iter().enumerate() {
            let record = &self.record.phases[index].tasks[number];
            let name = task.name.clone();
            match record.state {
                TaskState::Pending | TaskState::Cancelled => unfinished.push((number, task)),
                TaskState::Done => self.publish_stop(name, None).await,
                TaskState::Failed => {
                    let reason = record.error.clone().unwrap_or_default();
                    self.publish_stop(name.clone(), Some(reason.clone())).await;
                    if !task.tolerated {
                        return Err(format!("task {name}: {reason}"));
                    }
                }
                TaskState::Started => {
                    let rule = std::mem::replace(&mut task.after_crash, AfterCrash::Again);
                    match found(rule).await {
                        Finding::NotDone => unfinished.push((number, task)),
                        Finding::Done => {
                            self.task_ended(index, number, TaskState::Done, None)
                                .await?;
                        }
                        Finding::Failed(reason) => {
                            let error = Some(reason.clone());
                            let recorded = self.task_ended(index, number, TaskState::Failed, error);
                            let recorded = recorded.await;
                            if !task.tolerated {
                                return Err(format!("task {name}: {reason}"));
                            }
                            recorded?;
                        }
                    }
                }
            }
        }
        Ok(unfinished)
    }

    async fn task_ended(
        &mut self,
        phase: usize,
        task: usize,
        state: TaskState,
        error: Option<String>,
    ) -> Result<(), Reason> {
        let record = &mut self.record.phases[phase].tasks[task];
        record.state = state;
        record.error.clone_from(&error);
        let name = record.name.clone();
        let recorded = self.write_or_fail().await;
        match &error {
            None => info!(task = name, "task done"),
            Some(reason) => warn!(task = name, reason, "task failed"),
        }
        self.publish_stop(name, error).await;
        recorded
    }

    /// Ends the tasks that run beside one that failed.
    async fn cancel(
        &mut self,
        index: usize,
        mut running: JoinSet<(usize, Result<(), Reason>)>,
        started: Vec<(usize, String, bool)>,
    ) {
        running.shutdown().await;
        for (task, name, _) in started {
            self.record.phases[index].tasks[task].state = TaskState::Cancelled;
            let reason = "cancelled because another task of the phase failed";
            self.publish_stop(name, Some(reason.to_owned())).await;
        }
    }

    async fn publish_stop(&self, task: String, error: Option<String>) {
        self.publish(move |publish| {
            publish(&Progress::TaskStopped {
                task: &task,
                error: error.as_deref(),
            });
        })
        .await;
    }

    async fn publish(&self, publish: impl FnOnce(&dyn Fn(&Progress<'_>)) + Send + 'static) {
        self.inner.observe(self.record.actor.clone(), publish).await;
    }

    async fn write(&self) -> std::io::Result<()> {
        lock(&self.shared).clone_from(&self.record);
        self.writer.write(&self.record).await
    }

    /// Records the progress. What is not recorded is not done, unless the sequence is forced.
    async fn write_or_fail(&self) -> Result<(), Reason> {
        match self.write().await {
            Ok(()) => Ok(()),
            Err(error) if self.record.forced => {
                warn!(%error, "cannot record the progress; the sequence is forced and continues");
                Ok(())
            }
            Err(error) => Err(format!("cannot record the progress: {}", chain(&error))),
        }
    }
}

/// Runs a task to its end or its deadline, in a task of its own, so that a panic is an error.
async fn perform(task: Task) -> Result<(), Reason> {
    let Task { deadline, work, .. } = task;
    let mut running = JoinSet::new();
    running.spawn(async move { work().await });
    match tokio::time::timeout(deadline, running.join_next()).await {
        Ok(Some(Ok(done))) => done.map_err(|why: TaskError| chain(&*why)),
        Ok(Some(Err(_)) | None) => Err("the task panicked".to_owned()),
        Err(_) => Err(format!("not done within {deadline:?}")),
    }
}

async fn found(rule: AfterCrash) -> Finding {
    match rule {
        AfterCrash::Again => Finding::NotDone,
        AfterCrash::Never => Finding::Failed(
            "the daemon ended while the task ran, and the task must not run twice".to_owned(),
        ),
        AfterCrash::Check(check) => match tokio::task::spawn_blocking(check).await {
            Ok(finding) => finding,
            Err(_) => Finding::Failed("the check of the interrupted task panicked".to_owned()),
        },
    }
}
