//! The daemon's side of the zygote: asked for a shim, it gives one.

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

use super::{Answer, Ask, Hidden};
use crate::frame;
use crate::shim::Birth;

/// Forking takes a fraction of a millisecond; who takes longer than this is stuck.
const LONGEST_ANSWER: Duration = Duration::from_secs(10);

#[derive(Debug, thiserror::Error)]
pub enum BirthError {
    #[error("the process that starts cells is not there")]
    NoZygote(#[source] io::Error),
    #[error("cannot {what}: {source}")]
    Failed { what: String, source: io::Error },
}

/// How the zygote is started: a program that calls [`super::run`] with its standard input.
#[derive(Debug, Clone)]
pub struct ZygoteCommand {
    pub program: PathBuf,
    pub args: Vec<OsString>,
}

impl Default for ZygoteCommand {
    /// This very program, also after its file was replaced.
    fn default() -> Self {
        Self {
            program: "/proc/self/exe".into(),
            args: vec!["shim".into()],
        }
    }
}

/// Started when it is first needed, and again should it ever be gone.
#[derive(Debug)]
pub(crate) struct Zygote {
    command: ZygoteCommand,
    hidden: Hidden,
    process: Mutex<Option<Process>>,
}

#[derive(Debug)]
struct Process {
    socket: UnixStream,
    child: Child,
}

/// A shim that was just born.
#[derive(Debug)]
pub(crate) struct Born {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

impl Zygote {
    pub(crate) fn new(command: ZygoteCommand, hidden: Hidden) -> Self {
        Self {
            command,
            hidden,
            process: Mutex::new(None),
        }
    }

    /// Blocks for about as long as a fork takes.
    pub(crate) fn birth(&self, birth: &Birth, fds: &[BorrowedFd<'_>]) -> Result<Born, BirthError> {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = process.as_mut() {
            match there.birth(birth, fds) {
                // It was there and is gone: another one is tried, once.
                Err(BirthError::NoZygote(_)) => *process = None,
                born => return born,
            }
        }
        let new = process.insert(Process::start(&self.command, &self.hidden)?);
        new.birth(birth, fds)
    }
}

impl Process {
    fn start(command: &ZygoteCommand, hidden: &Hidden) -> Result<Self, BirthError> {
        let start = || {
            let (socket, other) = UnixStream::pair()?;
            socket.set_read_timeout(Some(LONGEST_ANSWER))?;
            socket.set_write_timeout(Some(LONGEST_ANSWER))?;
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
        let mut process = start().map_err(BirthError::NoZygote)?;
        match process.ask(&Ask::Prepare(hidden.clone()), &[])? {
            (Answer::Prepared, _) => Ok(process),
            (answer, _) => Err(unexpected(answer)),
        }
    }

    fn birth(&mut self, birth: &Birth, fds: &[BorrowedFd<'_>]) -> Result<Born, BirthError> {
        let (answer, mut fds) = self.ask(&Ask::Birth(birth.clone()), fds)?;
        match (answer, fds.pop()) {
            (Answer::Born { pid }, Some(pidfd)) => Ok(Born {
                pid: Pid::from_raw(pid).ok_or_else(|| unexpected(Answer::Prepared))?,
                pidfd,
            }),
            (answer, _) => Err(unexpected(answer)),
        }
    }

    fn ask(
        &mut self,
        ask: &Ask,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(Answer, Vec<OwnedFd>), BirthError> {
        frame::send(&self.socket, ask, fds).map_err(BirthError::NoZygote)?;
        let answer = frame::receive(&self.socket).map_err(BirthError::NoZygote)?;
        let gone = || BirthError::NoZygote(io::ErrorKind::BrokenPipe.into());
        answer.ok_or_else(gone)
    }
}

fn unexpected(answer: Answer) -> BirthError {
    match answer {
        Answer::Failed { what, errno } => BirthError::Failed {
            what,
            source: io::Error::from_raw_os_error(errno),
        },
        Answer::Prepared | Answer::Born { .. } => {
            BirthError::NoZygote(io::ErrorKind::InvalidData.into())
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It ends when its socket closes; whatever keeps it from that ends here.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
