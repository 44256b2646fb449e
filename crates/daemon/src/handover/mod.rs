//! The replacement of the running daemon in place: the same PID executes a binary, and the
//! listening sockets stay open, so that connections wait in the backlog instead of being refused.
//!
//! Sockets are passed as systemd passes them (`LISTEN_PID`, `LISTEN_FDS`, `LISTEN_FDNAMES`): every
//! build since socket activation takes them over, also an older one after a rollback. What only
//! our own builds know is in one more variable, [`VARIABLE`].

mod process;
mod sys;

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use mainstay_slots::TrialChannel;
use serde::{Deserialize, Serialize};
use tracing::{error, info};

pub use process::{End, Ends, Process, Program};

/// The variable with the [`Note`] of the daemon that was replaced.
const VARIABLE: &str = "MAINSTAY_HANDOVER";

/// The first inherited file descriptor, by the protocol of systemd.
const FIRST_FD: RawFd = 3;
/// TLS, unix, Aurae, pods, and room for later ones.
const MAX_SOCKETS: RawFd = 8;
/// Handed sockets are kept above the numbers that they are passed as.
const MIN_KEPT_FD: RawFd = 64;

/// The running binary, even after its file was replaced or removed.
const OWN_BINARY: &str = "/proc/self/exe";

/// The message of a daemon to the one that replaces it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Note {
    /// Guards against a child process that inherits the environment.
    pid: u32,
    /// The sockets that the daemon has bound itself, by name. The others are the service manager's.
    pub bound: Vec<String>,
    /// Why the wanted binary was not executed; this one was instead.
    #[serde(default)]
    pub failure: Option<String>,
}

/// A listening socket to be passed on.
#[derive(Debug)]
pub struct HandedSocket {
    pub name: &'static str,
    /// Whether the daemon has bound it, rather than the service manager.
    pub bound: bool,
    fd: OwnedFd,
}

impl HandedSocket {
    pub fn of(name: &'static str, bound: bool, socket: &impl AsFd) -> io::Result<Self> {
        let fd = rustix::io::fcntl_dupfd_cloexec(socket, MIN_KEPT_FD)?;
        Ok(Self { name, bound, fd })
    }
}

/// A daemon that has stopped and is to be replaced.
#[derive(Debug)]
pub struct Replacement {
    pub program: Program,
    pub sockets: Vec<HandedSocket>,
}

impl Replacement {
    /// Executes the binary with the arguments of this process. Returns only if neither it nor the
    /// running binary can be executed.
    pub fn execute(self) -> io::Error {
        let arguments: Vec<OsString> = std::env::args_os().collect();
        let wanted = match &self.program {
            Program::Installed => installed().to_owned(),
            Program::At(path) => path.clone(),
        };
        let passed = self.pass_sockets();
        let bound = (self.sockets.iter().filter(|socket| socket.bound))
            .map(|socket| socket.name.to_owned());
        let mut note = Note {
            pid: std::process::id(),
            bound: bound.collect(),
            failure: None,
        };
        if let Err(error) = passed {
            // Without sockets the next daemon binds its own, as at a start.
            error!(%error, "cannot pass the listening sockets on");
        }
        let error = self.command(&wanted, &arguments, &note).exec();
        let failure = format!("cannot execute {}: {error}", wanted.display());
        error!(failure, "executing the running binary again");
        note.failure = Some(failure);
        self.command(Path::new(OWN_BINARY), &arguments, &note)
            .exec()
    }

    fn command(&self, program: &Path, arguments: &[OsString], note: &Note) -> Command {
        let names: Vec<&str> = self.sockets.iter().map(|socket| socket.name).collect();
        let mut command = Command::new(program);
        if let Some((name, rest)) = arguments.split_first() {
            command.arg0(name).args(rest);
        }
        command
            .env("LISTEN_PID", std::process::id().to_string())
            .env("LISTEN_FDS", names.len().to_string())
            .env("LISTEN_FDNAMES", names.join(":"))
            .env(VARIABLE, serde_json::to_string(note).unwrap_or_default());
        command
    }

    /// Puts the sockets where the next daemon looks for them. Only placeholders and sockets of this
    /// daemon are there.
    fn pass_sockets(&self) -> io::Result<()> {
        for (number, socket) in (FIRST_FD..FIRST_FD + MAX_SOCKETS).zip(&self.sockets) {
            sys::duplicate_to(socket.fd.as_fd(), number)?;
        }
        Ok(())
    }
}

/// Keeps the file descriptors on which sockets are passed from being used for anything else, and
/// remembers the path of the binary. To be called before any file is opened.
pub fn prepare() {
    static RESERVED: OnceLock<Vec<OwnedFd>> = OnceLock::new();
    RESERVED.get_or_init(|| {
        let mut reserved = Vec::new();
        // Without placeholders a replacement may close a file of the daemon that it replaces.
        while let Ok(null) = std::fs::File::open("/dev/null") {
            if null.as_raw_fd() >= FIRST_FD + MAX_SOCKETS {
                break;
            }
            reserved.push(OwnedFd::from(null));
        }
        reserved
    });
    installed();
}

/// The path of the running binary, as it was when the process started: an update of the file there
/// is what the next daemon executes.
fn installed() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| std::env::current_exe().unwrap_or_else(|_| OWN_BINARY.into()))
}

/// Returns the note of the daemon that this process has replaced.
pub fn note() -> Option<Note> {
    let text = std::env::var(VARIABLE).ok()?;
    let note: Note = serde_json::from_str(&text).ok()?;
    // A daemon on trial has the sockets of its guard.
    let guard = rustix::process::getppid().map(|pid| pid.as_raw_nonzero().get().unsigned_abs());
    let is_ours =
        note.pid == std::process::id() || (TrialChannel::is_open() && Some(note.pid) == guard);
    is_ours.then_some(note)
}

/// Logs how this daemon came to be.
pub fn log_arrival() {
    if let Some(note) = note() {
        match &note.failure {
            None => info!(
                sockets = note.bound.join(" "),
                "replaced the last daemon in place"
            ),
            Some(failure) => error!(failure, "the daemon was not replaced; this binary runs on"),
        }
    }
}
