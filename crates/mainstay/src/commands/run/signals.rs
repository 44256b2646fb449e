//! Signals to forward to the program.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    int: Signal,
    term: Signal,
    hup: Signal,
    quit: Signal,
}

impl Signals {
    /// Registers handlers, so that these signals no longer kill the process.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
            quit: signal(SignalKind::quit())?,
        })
    }

    /// Returns the number of the next signal, including one received since the last call.
    pub(super) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.int.recv() => SignalKind::interrupt(),
            _ = self.term.recv() => SignalKind::terminate(),
            _ = self.hup.recv() => SignalKind::hangup(),
            _ = self.quit.recv() => SignalKind::quit(),
        };
        kind.as_raw_value()
    }

    /// Returns the second signal from now, so that one Ctrl-C too many does not skip the cleanup.
    pub(super) async fn twice(&mut self) -> i32 {
        self.next().await;
        self.next().await
    }
}
