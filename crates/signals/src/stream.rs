//! A stream of signals: a thread that reads an instance until its reader is gone.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::mpsc;
use tracing::info;

use crate::instance::{Instance, Traced};
use crate::membership::{Group, Members};
use crate::tracefs::TraceFs;
use crate::{Running, Signal, SignalsError};

/// Batches of signals that the thread may run ahead of the reader; more wait in the kernel.
const READ_AHEAD: usize = 16;
/// Events that may wait for their order; it is reached only if the clock stands still.
const MAX_HELD: usize = 1 << 20;

#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("signals were lost: they arrive faster than they are read; call again")]
    Lost,
    #[error("cannot read the traced signals")]
    Io(#[source] io::Error),
}

/// Signals as they are sent. Dropping it ends the tracing.
#[derive(Debug)]
pub struct SignalStream {
    batches: mpsc::Receiver<Result<Vec<Signal>, StreamError>>,
    end: Arc<OwnedFd>,
}

impl SignalStream {
    pub(crate) fn start(
        tracefs: &Arc<TraceFs>,
        name: &str,
        group: Option<Box<dyn Group>>,
        running: Running,
    ) -> Result<Self, SignalsError> {
        let failed = |action: &str, source: io::Error| SignalsError::Instance {
            action: action.to_owned(),
            source,
        };
        let end = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| failed("create the eventfd", error.into()))?;
        let end = Arc::new(end);
        let instance = Instance::create(Arc::clone(tracefs), name, group.is_some())?;
        // Forks are traced already, so that no child is missed after the list was taken.
        let tracer = Tracer {
            instance,
            members: group.map(Members::new),
            held: Vec::new(),
            end: Arc::clone(&end),
        };
        let (send, batches) = mpsc::channel(READ_AHEAD);
        let work = move || {
            tracer.run(&send);
            drop(send);
            // The tracer is gone, and the instance with it.
            info!("signal tracing ended");
            drop(running);
        };
        std::thread::Builder::new()
            .name("signals".to_owned())
            .spawn(work)
            .map_err(|error| failed("start the thread", error))?;
        Ok(Self { batches, end })
    }

    /// Returns the next signals; `None` never, unless the thread has failed.
    pub async fn next(&mut self) -> Option<Result<Vec<Signal>, StreamError>> {
        self.batches.recv().await
    }
}

impl Drop for SignalStream {
    fn drop(&mut self) {
        // Wakes the thread, which finds the channel closed.
        self.batches.close();
        let _ = rustix::io::write(&*self.end, &1_u64.to_ne_bytes());
    }
}

struct Tracer {
    instance: Instance,
    members: Option<Members>,
    /// Events that may still be preceded by one of another CPU.
    held: Vec<(u64, Traced)>,
    end: Arc<OwnedFd>,
}

impl Tracer {
    /// Reads until the reader is gone.
    fn run(mut self, reader: &mpsc::Sender<Result<Vec<Signal>, StreamError>>) {
        while !reader.is_closed() {
            let sent = match self.round() {
                Ok(signals) if signals.is_empty() => Ok(()),
                Ok(signals) => reader.blocking_send(Ok(signals)),
                Err(error) => {
                    let _ = reader.blocking_send(Err(error));
                    return;
                }
            };
            if sent.is_err() {
                return;
            }
        }
    }

    fn round(&mut self) -> Result<Vec<Signal>, StreamError> {
        if self.held.is_empty() {
            self.instance.wait(&self.end).map_err(StreamError::Io)?;
        }
        // Every event before this moment is in a buffer that is read now, on whichever CPU; a later
        // one waits for the next round, so that a fork always precedes a signal to the child.
        let complete = now();
        let lost = self.instance.drain(&mut self.held);
        if lost.map_err(StreamError::Io)? || self.held.len() > MAX_HELD {
            return Err(StreamError::Lost);
        }
        self.held.sort_by_key(|(time, _)| *time);
        let ready = self.held.partition_point(|(time, _)| *time < complete);
        let events: Vec<_> = self.held.drain(..ready).collect();
        Ok(events
            .into_iter()
            .filter_map(|(_, traced)| self.signal(traced))
            .collect())
    }

    fn signal(&mut self, traced: Traced) -> Option<Signal> {
        match (traced, &mut self.members) {
            (Traced::Signal { number, pid }, None) => Some(Signal { number, pid }),
            (Traced::Signal { number, pid }, Some(members)) => {
                members.contains(pid).then_some(Signal { number, pid })
            }
            (Traced::Forked { parent, child }, Some(members)) => {
                members.forked(parent, child);
                None
            }
            (Traced::Exited { pid }, Some(members)) => {
                members.exited(pid);
                None
            }
            (_, None) => None,
        }
    }
}

fn now() -> u64 {
    let now = clock_gettime(ClockId::Monotonic);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}
