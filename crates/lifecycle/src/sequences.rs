//! The engine: one sequence at a time, the next daemon continues it.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use mainstay_records::RecordError;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

use crate::driver::Driver;
use crate::observer::{Failure, FailureKind, Observer, Progress};
use crate::record::{Ended, PhaseRecord, SequenceRecord};
use crate::store::Store;
use crate::{ActorId, OpenError, Plan, StartError};

/// A sequence that was interrupted this often fails: one of its tasks ends the daemon.
const MAX_RESUMES: u32 = 5;

/// Bounds one call of the observer; a journal on a stalled disk does not hold up a sequence.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// A sequence as a caller requests it.
#[derive(Debug, Clone)]
pub struct Request {
    /// The name of the sequence, such as `reboot`.
    pub sequence: String,
    /// The caller, for people.
    pub requested_by: String,
    /// Takes the place of a running sequence, tolerates failures of its tasks, and runs also when
    /// its progress cannot be recorded.
    pub forced: bool,
    /// The arguments from which the next daemon builds the same plan.
    pub arguments: serde_json::Value,
}

/// A sequence that ran when the last daemon ended.
#[derive(Debug)]
pub struct Interrupted {
    pub record: SequenceRecord,
    slot: u64,
}

/// The engine of sequences. Cheap to clone.
#[derive(Clone)]
pub struct Sequences(pub(crate) Arc<Inner>);

pub(crate) struct Inner {
    store: Store,
    observer: Arc<dyn Observer>,
    current: Mutex<Current>,
    /// Signalled whenever the slot is freed.
    released: Notify,
}

#[derive(Default)]
struct Current {
    slots: u64,
    running: Option<Running>,
    /// No sequence starts any more.
    closed: bool,
}

struct Running {
    slot: u64,
    record: Arc<Mutex<SequenceRecord>>,
    driver: Option<AbortHandle>,
    /// All its work is done; only its end remains to be published.
    ending: bool,
}

/// An opened engine, and what the last daemon left.
#[derive(Debug)]
pub struct Opened {
    pub sequences: Sequences,
    /// To be resumed or failed once the node serves; until then no other sequence starts, except
    /// a forced one.
    pub interrupted: Option<Interrupted>,
    /// The record exists and cannot be read; the next sequence replaces it.
    pub unreadable: Option<RecordError>,
}

impl Sequences {
    /// Opens the record in `directory`. Blocks on the disk.
    pub fn open(directory: &Path, observer: impl Observer) -> Result<Opened, OpenError> {
        let (store, found) = Store::open(directory)?;
        let (record, unreadable) = match found {
            Ok(record) => (record, None),
            Err(error) => (None, Some(error)),
        };
        let sequences = Self(Arc::new(Inner {
            store,
            observer: Arc::new(observer),
            current: Mutex::default(),
            released: Notify::new(),
        }));
        let interrupted = record.and_then(|record| sequences.0.take_over(record));
        Ok(Opened {
            sequences,
            interrupted,
            unreadable,
        })
    }

    /// Reads the record of the last sequence, of an engine that is not open. Blocks on the disk.
    pub fn last(directory: &Path) -> Result<SequenceRecord, RecordError> {
        Store::read(directory)
    }

    /// Starts a sequence: on return it is recorded and runs in the background.
    pub async fn start(
        &self,
        request: Request,
        plan: impl FnOnce(&ActorId) -> Plan,
    ) -> Result<ActorId, StartError> {
        let actor = ActorId::random();
        let plan = plan(&actor);
        let record = SequenceRecord {
            sequence: request.sequence,
            actor: actor.clone(),
            requested_by: request.requested_by,
            forced: request.forced,
            arguments: request.arguments,
            resumes: 0,
            phases: PhaseRecord::of(&plan),
            ended: None,
        };
        let (slot, preempted) = self.0.wait_for_slot(&record).await?;
        let writer = self.0.store.writer();
        if let Some(preempted) = preempted {
            self.0.report_preempted(preempted, &record).await;
        }
        if let Err(source) = writer.write(&record).await {
            if !record.forced {
                self.0.release(slot);
                writer.remove().await;
                return Err(StartError::NotRecorded {
                    sequence: record.sequence,
                    source,
                });
            }
            tracing::error!(
                sequence = record.sequence,
                error = %source,
                "cannot record the sequence; it is forced and continues"
            );
        }
        self.0.drive(slot, writer, record, plan);
        Ok(actor)
    }

    /// Continues a sequence that the last daemon left. `plan` is built from its record.
    pub async fn resume(&self, interrupted: Interrupted, plan: Plan) {
        let Interrupted { mut record, slot } = interrupted;
        record.resumes += 1;
        if !record.fits(&plan) {
            let reason = "its phases differ in this version of mainstay";
            return self.end_interrupted(record, slot, reason).await;
        }
        if record.resumes > MAX_RESUMES {
            let reason = format!("the daemon ended {MAX_RESUMES} times while it ran");
            return self.end_interrupted(record, slot, &reason).await;
        }
        if self.0.is_current(slot) {
            self.0.drive(slot, self.0.store.writer(), record, plan);
        }
    }

    /// Ends a sequence that the last daemon left and that this one cannot continue.
    pub async fn fail(&self, interrupted: Interrupted, reason: &str) {
        let Interrupted { record, slot } = interrupted;
        self.end_interrupted(record, slot, reason).await;
    }

    /// Returns the record of the sequence that runs.
    pub fn running(&self) -> Option<SequenceRecord> {
        let current = self.0.current();
        let running = current.running.as_ref()?;
        Some(lock(&running.record).clone())
    }

    /// Waits until no sequence runs.
    pub async fn until_idle(&self) {
        loop {
            let mut released = std::pin::pin!(self.0.released.notified());
            released.as_mut().enable();
            if self.0.current().running.is_none() {
                return;
            }
            released.await;
        }
    }

    /// Starts no further sequence, and leaves one that runs to the next daemon.
    pub fn close(&self) {
        let mut current = self.0.current();
        current.closed = true;
        let running = current.running.take();
        if let Some(driver) = running.and_then(|running| running.driver) {
            driver.abort();
        }
    }

    async fn end_interrupted(&self, record: SequenceRecord, slot: u64, reason: &str) {
        if self.0.is_current(slot) {
            let failure = Failure {
                kind: FailureKind::Failed,
                reason: format!("interrupted by a restart of the daemon: {reason}"),
            };
            let writer = self.0.store.writer();
            let mut driver = Driver::new(Arc::clone(&self.0), slot, writer, record);
            driver.end(Some(failure)).await;
        }
    }
}

impl Inner {
    fn current(&self) -> MutexGuard<'_, Current> {
        lock(&self.current)
    }

    fn is_current(&self, slot: u64) -> bool {
        let current = self.current();
        current.running.as_ref().is_some_and(|it| it.slot == slot)
    }

    /// Takes the slot for what the last daemon left, or publishes its end if only that is missing.
    fn take_over(&self, mut record: SequenceRecord) -> Option<Interrupted> {
        match &mut record.ended {
            Some(Ended {
                published: true, ..
            }) => None,
            Some(ended) => {
                ended.published = true;
                let failure = ended.failure.clone();
                let progress = end_of(&record.sequence, failure.as_ref());
                self.observer.observe(&record.actor, &progress);
                if let Err(error) = self.store.writer().write_blocking(&record) {
                    tracing::warn!(%error, "cannot record that the end of a sequence is published");
                }
                None
            }
            None => {
                let mut current = self.current();
                let slot = current.put(&record);
                drop(current);
                Some(Interrupted { record, slot })
            }
        }
    }

    /// Takes the slot, after the end of a sequence that only remains to be published: a client
    /// that has seen the end can start the next sequence, and the events keep their order.
    async fn wait_for_slot(
        &self,
        record: &SequenceRecord,
    ) -> Result<(u64, Option<SequenceRecord>), StartError> {
        loop {
            let mut released = std::pin::pin!(self.released.notified());
            released.as_mut().enable();
            match self.take_slot(record) {
                Err(StartError::Busy { .. }) if self.is_ending() => released.await,
                taken => return taken,
            }
        }
    }

    fn is_ending(&self) -> bool {
        // A slot that was freed meanwhile is taken by the next attempt.
        self.current().running.as_ref().is_none_or(|it| it.ending)
    }

    pub(crate) fn set_ending(&self, slot: u64) {
        let mut current = self.current();
        if let Some(running) = current.running.as_mut().filter(|it| it.slot == slot) {
            running.ending = true;
        }
    }

    /// Takes the slot; also returns the sequence that a forced one takes it from.
    fn take_slot(
        &self,
        record: &SequenceRecord,
    ) -> Result<(u64, Option<SequenceRecord>), StartError> {
        let mut current = self.current();
        if current.closed {
            return Err(StartError::Stopping);
        }
        let preempted = match current.running.take() {
            None => None,
            Some(running) if record.forced => {
                if let Some(driver) = &running.driver {
                    driver.abort();
                }
                let record = lock(&running.record).clone();
                Some(record)
            }
            Some(running) => {
                let busy = lock(&running.record).clone();
                current.running = Some(running);
                return Err(StartError::Busy {
                    sequence: busy.sequence,
                    actor: busy.actor,
                    requested_by: busy.requested_by,
                });
            }
        };
        Ok((current.put(record), preempted))
    }

    pub(crate) fn release(&self, slot: u64) {
        let mut current = self.current();
        if current.running.as_ref().is_some_and(|it| it.slot == slot) {
            current.running = None;
            drop(current);
            self.released.notify_waiters();
        }
    }

    fn drive(
        self: &Arc<Self>,
        slot: u64,
        writer: crate::store::Writer,
        record: SequenceRecord,
        plan: Plan,
    ) {
        let mut current = self.current();
        let Some(running) = current.running.as_mut().filter(|it| it.slot == slot) else {
            // A forced sequence has taken the slot meanwhile.
            return;
        };
        let driver = Driver::new(Arc::clone(self), slot, writer, record);
        running.record = driver.shared();
        running.driver = Some(tokio::spawn(driver.run(plan)).abort_handle());
    }

    async fn report_preempted(self: &Arc<Self>, preempted: SequenceRecord, by: &SequenceRecord) {
        let failure = Failure {
            kind: FailureKind::Preempted,
            reason: format!(
                "preempted by forced sequence {} of actor {}, requested by {}",
                by.sequence, by.actor, by.requested_by
            ),
        };
        self.observe(preempted.actor, move |publish| {
            publish(&end_of(&preempted.sequence, Some(&failure)));
        })
        .await;
    }

    /// Calls the observer on a blocking thread, in order with the other calls of the same caller.
    pub(crate) async fn observe(
        self: &Arc<Self>,
        actor: ActorId,
        publish: impl FnOnce(&dyn Fn(&Progress<'_>)) + Send + 'static,
    ) {
        let observer = Arc::clone(&self.observer);
        let observed = tokio::task::spawn_blocking(move || {
            publish(&|progress| observer.observe(&actor, progress));
        });
        if tokio::time::timeout(OBSERVE_TIMEOUT, observed)
            .await
            .is_err()
        {
            tracing::error!("an event of a sequence was not published in time");
        }
    }
}

impl Current {
    fn put(&mut self, record: &SequenceRecord) -> u64 {
        self.slots += 1;
        self.running = Some(Running {
            slot: self.slots,
            record: Arc::new(Mutex::new(record.clone())),
            driver: None,
            ending: false,
        });
        self.slots
    }
}

/// The event that ends a sequence.
pub(crate) fn end_of<'a>(sequence: &'a str, failure: Option<&'a Failure>) -> Progress<'a> {
    match failure {
        None => Progress::SequenceStopped { sequence },
        Some(failure) => Progress::SequenceFailed { sequence, failure },
    }
}

/// A panic elsewhere leaves these values whole: each change under a lock is complete in itself.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for Sequences {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sequences").finish_non_exhaustive()
    }
}
