//! The async API of a reader.
//!
//! Files are read on blocking threads only. A cancelled future loses nothing: the next one continues
//! the read it started.

use std::time::Duration;

use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::timeout;

use super::chunk::LogChunk;
use super::error::LogError;
use super::follow::{Follower, Gone};
use super::reader::{Reader, Step};
use crate::Timestamp;

/// A log being read. Dropping it stops the read.
#[derive(Debug)]
pub struct LogStream {
    log: String,
    state: State,
    /// Present while following.
    follower: Option<Follower>,
    until: Option<Timestamp>,
    /// True if the stream no longer waits for new lines.
    finishing: bool,
}

#[derive(Debug)]
enum State {
    Idle(Box<Reader>),
    Reading(JoinHandle<(Box<Reader>, Result<Step, LogError>)>),
    Ended,
}

/// The reason a wait for new lines ended.
enum Woken {
    Written,
    NothingMoreToCome,
}

impl LogStream {
    pub(super) fn new(
        reader: Reader,
        follower: Option<Follower>,
        until: Option<Timestamp>,
    ) -> Self {
        let log = reader.name().to_owned();
        Self {
            log,
            state: State::Idle(Box::new(reader)),
            follower,
            until,
            finishing: false,
        }
    }

    /// Announces that the writer is done: the stream ends once everything is read.
    pub fn finish(&mut self) {
        self.finishing = true;
    }

    /// Returns the next lines, waiting for them when following. `None` at the end: of the log as it
    /// was when the read started or, when following, when `until` has passed or the log was deleted.
    /// The stream remains usable after an error.
    pub async fn next(&mut self) -> Result<Option<LogChunk>, LogError> {
        loop {
            match self.step().await? {
                Step::Chunk(chunk) => return Ok(Some(chunk)),
                Step::End => {
                    self.state = State::Ended;
                    self.follower = None;
                    return Ok(None);
                }
                Step::Wait => {
                    let woken = if self.finishing {
                        Woken::NothingMoreToCome
                    } else {
                        self.wait().await
                    };
                    if let (Woken::NothingMoreToCome, State::Idle(reader)) =
                        (woken, &mut self.state)
                    {
                        reader.close();
                    }
                }
            }
        }
    }

    async fn step(&mut self) -> Result<Step, LogError> {
        if matches!(self.state, State::Idle(_)) {
            if let Some(follower) = &mut self.follower {
                follower.mark_seen();
            }
            if let State::Idle(mut reader) = std::mem::replace(&mut self.state, State::Ended) {
                self.state = State::Reading(spawn_blocking(move || {
                    let step = reader.step();
                    (reader, step)
                }));
            }
        }
        let State::Reading(reading) = &mut self.state else {
            return Ok(Step::End);
        };
        match reading.await {
            Ok((reader, step)) => {
                self.state = State::Idle(reader);
                step
            }
            Err(_) => {
                self.state = State::Ended;
                Err(LogError::Interrupted {
                    log: self.log.clone(),
                })
            }
        }
    }

    async fn wait(&mut self) -> Woken {
        let Some(follower) = &mut self.follower else {
            return Woken::NothingMoreToCome;
        };
        let changed = match self.until {
            Some(until) => timeout(time_to(until), follower.changed()).await,
            None => Ok(follower.changed().await),
        };
        match changed {
            Ok(Ok(())) => Woken::Written,
            Ok(Err(Gone)) | Err(_) => Woken::NothingMoreToCome,
        }
    }
}

fn time_to(until: Timestamp) -> Duration {
    let nanos = until.as_nanos().saturating_sub(Timestamp::now().as_nanos());
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}
