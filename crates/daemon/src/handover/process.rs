//! The end of the process, as sequences ask for it.

use std::path::PathBuf;

use mainstay_lifecycle::platform::NodeProcess;
use tokio::sync::mpsc;

/// The binary that replaces the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Program {
    /// The file from which this daemon was started, with the updates made to it.
    Installed,
    At(PathBuf),
}

/// How the daemon ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// With exit code 0.
    Exit,
    /// By executing a binary in place.
    Replace(Program),
    /// With exit code 0, leaving the sockets to the guard of the trial, which becomes the daemon.
    Release,
}

/// Asks the daemon to end. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Process {
    ends: mpsc::UnboundedSender<End>,
}

/// Receives the requests to end; the first one counts.
#[derive(Debug)]
pub struct Ends(mpsc::UnboundedReceiver<End>);

impl Process {
    pub fn new() -> (Self, Ends) {
        let (ends, receiver) = mpsc::unbounded_channel();
        (Self { ends }, Ends(receiver))
    }

    /// Drains the daemon, stops its engines, and executes `program` with the same PID, arguments
    /// and listening sockets. Returns at once; what runs until then has the stop timeout.
    ///
    /// If `program` cannot be executed, the running binary is, which finds the reason in
    /// [`note`](super::note). A program that is executed and fails is not covered: run it once
    /// before.
    pub fn replace(&self, program: Program) {
        self.send(End::Replace(program));
    }

    /// Drains the daemon and leaves its place to the guard of its trial.
    pub fn release(&self) {
        self.send(End::Release);
    }

    fn send(&self, end: End) {
        // The receiver is gone only when the daemon ends already.
        let _ = self.ends.send(end);
    }
}

impl NodeProcess for Process {
    fn restart(&self) {
        self.replace(Program::Installed);
    }

    fn exit(&self) {
        self.send(End::Exit);
    }
}

impl Ends {
    pub async fn next(&mut self) -> End {
        match self.0.recv().await {
            Some(end) => end,
            None => std::future::pending().await,
        }
    }
}
