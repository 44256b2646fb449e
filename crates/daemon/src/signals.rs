//! The signals that stop and reload the daemon.

use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

/// A request made by a signal.
pub enum Signalled {
    /// With the name of the signal.
    Stop(&'static str),
    Reload,
}

impl Signals {
    pub fn listen() -> std::io::Result<Self> {
        Ok(Self {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
            hup: signal(SignalKind::hangup())?,
        })
    }

    pub async fn next(&mut self) -> Signalled {
        tokio::select! {
            _ = self.term.recv() => Signalled::Stop("SIGTERM"),
            _ = self.int.recv() => Signalled::Stop("SIGINT"),
            _ = self.hup.recv() => Signalled::Reload,
        }
    }

    /// Waits for the next signal to stop; a reload comes too late.
    pub async fn stop(&mut self) -> &'static str {
        loop {
            if let Signalled::Stop(signal) = self.next().await {
                return signal;
            }
        }
    }
}
