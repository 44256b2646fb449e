//! Signals that are meant for the program on the node.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

pub(super) struct Signals {
    int: Signal,
    term: Signal,
    hup: Signal,
}

impl Signals {
    /// From here on none of them ends the process by itself.
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            int: signal(SignalKind::interrupt())?,
            term: signal(SignalKind::terminate())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    /// The number of the next one, also if it came while nobody waited.
    pub(super) async fn next(&mut self) -> i32 {
        let kind = tokio::select! {
            _ = self.int.recv() => SignalKind::interrupt(),
            _ = self.term.recv() => SignalKind::terminate(),
            _ = self.hup.recv() => SignalKind::hangup(),
        };
        kind.as_raw_value()
    }

    /// The second one from now: a key that was pressed once too often is no reason to leave
    /// something behind.
    pub(super) async fn twice(&mut self) -> i32 {
        self.next().await;
        self.next().await
    }
}
