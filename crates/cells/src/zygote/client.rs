//! The daemon's side of the zygote.

use std::ffi::OsString;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rustix::process::Pid;

use super::{HiddenPaths, VERSION, ZygoteReply, ZygoteRequest};
use crate::frame::{self, Versioned};
use crate::shim::ShimSpec;

/// Forking takes a fraction of a millisecond; a zygote that takes longer than this is stuck.
const REPLY_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum ForkShimError {
    #[error("cannot start or reach the zygote process")]
    NoZygote(#[source] io::Error),
    #[error("cannot {operation}")]
    Failed {
        operation: String,
        source: io::Error,
    },
}

/// How the zygote is started: a program that calls [`super::run`] with its standard input.
#[derive(Debug, Clone)]
pub struct ZygoteCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Default for ZygoteCommand {
    /// The running binary, even after its file was replaced.
    fn default() -> Self {
        Self {
            program: "/proc/self/exe".into(),
            args: vec!["shim".into()],
        }
    }
}

/// The zygote, started on first use, and restarted if it has exited.
#[derive(Debug)]
pub(crate) struct Zygote {
    command: ZygoteCommand,
    /// Missing where nothing is hidden: the mounts stay the host's.
    hidden: Option<HiddenPaths>,
    process: Mutex<Option<ZygoteProcess>>,
}

#[derive(Debug)]
struct ZygoteProcess {
    socket: UnixStream,
    child: Child,
}

/// A shim that the zygote has just forked.
#[derive(Debug)]
pub(crate) struct ForkedShim {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Zygote {
    pub(crate) fn new(command: ZygoteCommand, hidden: Option<HiddenPaths>) -> Self {
        Self {
            command,
            hidden,
            process: Mutex::new(None),
        }
    }

    /// Ends the process and reaps it. The next fork starts another.
    pub(crate) fn stop(&self) {
        let process = (self.process.lock().unwrap_or_else(PoisonError::into_inner)).take();
        drop(process);
    }

    /// Forks a shim. Blocks for about as long as a fork takes.
    pub(crate) fn fork_shim(
        &self,
        spec: &ShimSpec,
        fds: &[BorrowedFd<'_>],
    ) -> Result<ForkedShim, ForkShimError> {
        // One request at a time, never blocked on a disk: the zygote opens no files.
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(running) = process.as_mut() {
            match running.fork_shim(spec, fds) {
                // It has exited since: restarted once.
                Err(ForkShimError::NoZygote(_)) => *process = None,
                forked => return forked,
            }
        }
        let new = process.insert(ZygoteProcess::start(&self.command, self.hidden.as_ref())?);
        new.fork_shim(spec, fds)
    }
}

impl ZygoteProcess {
    fn start(command: &ZygoteCommand, hidden: Option<&HiddenPaths>) -> Result<Self, ForkShimError> {
        let start = || {
            let (socket, other) = UnixStream::pair()?;
            socket.set_read_timeout(Some(REPLY_TIMEOUT))?;
            socket.set_write_timeout(Some(REPLY_TIMEOUT))?;
            let child = Command::new(&command.program)
                .args(&command.args)
                .arg0("mainstay")
                .env_clear()
                .current_dir("/")
                .stdin(Stdio::from(OwnedFd::from(other)))
                .stdout(Stdio::null())
                .stderr(Stdio::inherit())
                .spawn()?;
            Ok(Self { socket, child })
        };
        let mut process = start().map_err(ForkShimError::NoZygote)?;
        let Some(hidden) = hidden else {
            return Ok(process);
        };
        match process.call(&ZygoteRequest::Prepare(hidden.clone()), &[])? {
            (ZygoteReply::Prepared, _) => Ok(process),
            (reply, _) => Err(unexpected(reply)),
        }
    }

    fn fork_shim(
        &mut self,
        spec: &ShimSpec,
        fds: &[BorrowedFd<'_>],
    ) -> Result<ForkedShim, ForkShimError> {
        let (reply, mut fds) = self.call(&ZygoteRequest::Fork(spec.clone()), fds)?;
        match (reply, fds.pop()) {
            (ZygoteReply::Forked { pid }, Some(pidfd)) => Ok(ForkedShim {
                pid: Pid::from_raw(pid).ok_or_else(|| unexpected(ZygoteReply::Prepared))?,
                pidfd,
            }),
            (reply, _) => Err(unexpected(reply)),
        }
    }

    fn call(
        &mut self,
        request: &ZygoteRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(ZygoteReply, Vec<OwnedFd>), ForkShimError> {
        let request = Versioned {
            version: VERSION,
            message: request,
        };
        frame::send(&self.socket, &request, fds).map_err(ForkShimError::NoZygote)?;
        let reply = frame::receive_versioned(&self.socket, VERSION);
        let reply = reply.map_err(ForkShimError::NoZygote)?;
        let eof = || ForkShimError::NoZygote(io::ErrorKind::BrokenPipe.into());
        reply.ok_or_else(eof)
    }
}

fn unexpected(reply: ZygoteReply) -> ForkShimError {
    match reply {
        ZygoteReply::Failed { operation, errno } => ForkShimError::Failed {
            operation,
            source: io::Error::from_raw_os_error(errno),
        },
        ZygoteReply::Prepared | ZygoteReply::Forked { .. } => {
            ForkShimError::NoZygote(io::ErrorKind::InvalidData.into())
        }
    }
}

impl Drop for ZygoteProcess {
    fn drop(&mut self) {
        // It exits when its socket closes; killed in case it is stuck.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
