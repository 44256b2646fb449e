//! The process that all shims are forked from.
//!
//! Executing this binary anew for each cell would cost milliseconds and a megabyte of relocated
//! pages every time. So the daemon keeps one small process of a single thread, which forks a shim
//! in a fraction of a millisecond; all shims share its pages. It ends with the daemon, the shims
//! do not.

mod handle;
mod rooms;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use rustix::process::Pid;
use serde::{Deserialize, Serialize};

pub(crate) use handle::Zygote;
pub use handle::{BirthError, ZygoteCommand};

use crate::frame;
use crate::shim::{self, Birth, Handed};
use crate::sys::{self, Forked};
use rooms::Rooms;

#[derive(Debug, Serialize, Deserialize)]
enum Ask {
    Prepare(Hidden),
    Birth(Birth),
}

/// What no cell may see: the daemon's state, covered by an empty directory inside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Hidden {
    pub(crate) state: PathBuf,
    pub(crate) cover: PathBuf,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    Prepared,
    Born { pid: i32 },
    Failed { what: String, errno: i32 },
}

/// Runs until the daemon, at the other end of the socket that is this process's standard input,
/// is gone. The caller must not have started any thread or opened anything.
pub fn run() -> io::Result<()> {
    sys::close_inherited()?;
    // Not of the daemon's terminal: a Ctrl-C there is for the daemon.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mainstay-shims");
    sys::ignore_children();
    // Only borrowed: each shim closes it by putting another input in its place.
    let stdin = io::stdin();
    let daemon = stdin.as_fd();
    let mut rooms = Rooms::open()?;
    while let Some((ask, fds)) = frame::receive(daemon)? {
        let (answer, pidfd) = match ask {
            Ask::Prepare(hidden) => match rooms.prepare(&hidden) {
                Ok(()) => (Answer::Prepared, None),
                Err((what, error)) => (failed(what, &error), None),
            },
            Ask::Birth(birth) => match give_birth(&birth, fds, &rooms) {
                Ok((pid, pidfd)) => {
                    let pid = pid.as_raw_nonzero().get();
                    (Answer::Born { pid }, Some(pidfd))
                }
                Err(error) => (
                    failed("start the first process of a cell".to_owned(), &error),
                    None,
                ),
            },
        };
        let pidfd: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
        frame::send(daemon, &answer, &pidfd)?;
    }
    Ok(())
}

fn failed(what: String, error: &io::Error) -> Answer {
    Answer::Failed {
        what,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    }
}

fn give_birth(birth: &Birth, fds: Vec<OwnedFd>, rooms: &Rooms) -> io::Result<(Pid, OwnedFd)> {
    let handed = Handed::take(birth, fds).ok_or(io::ErrorKind::InvalidData)?;
    let into = handed.unified.as_ref().map(AsFd::as_fd);
    match sys::fork_into(birth.namespaces(), into)? {
        Forked::Parent { pid, pidfd } => Ok((pid, pidfd)),
        Forked::Child => {
            let ended = shim::live(birth, handed, rooms.host());
            sys::exit_now(i32::from(ended.is_err()))
        }
    }
}
