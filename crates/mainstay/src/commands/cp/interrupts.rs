//! SIGINT and SIGTERM while a file is written.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::{Exit, Failure};

pub(in crate::commands) struct Interrupts {
    int: Signal,
    term: Signal,
}

impl Interrupts {
    /// Registers handlers, so that a signal no longer kills the process.
    pub(in crate::commands) fn listen() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for SIGTERM only, where SIGINT is meant for a program on the same terminal.
    pub(in crate::commands) async fn term(&mut self) -> Failure {
        self.term.recv().await;
        Failure::new(Exit::Terminated, "terminated")
    }

    pub(in crate::commands) async fn next(&mut self) -> Failure {
        tokio::select! {
            _ = self.int.recv() => Failure::new(Exit::Interrupted, "interrupted"),
            _ = self.term.recv() => Failure::new(Exit::Terminated, "terminated"),
        }
    }
}
