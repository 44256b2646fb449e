//! The channel between the guard and the daemon on trial: the daemon reports whether it is
//! healthy, the guard answers when it is recorded, and both are lines of text.

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::OnceLock;

use rustix::io::{FdFlags, fcntl_setfd};

use crate::sys;

/// Names the descriptor of the channel to the daemon on trial.
pub(crate) const TRIAL_VARIABLE: &str = "MAINSTAY_TRIAL";

pub(crate) const HEALTHY: &str = "healthy";
pub(crate) const FAILED: &str = "failed ";
pub(crate) const CONFIRMED: &str = "confirmed";

/// Characters of a reason.
const MAX_REASON_CHARS: usize = 1000;

/// The reason a trial cannot be reported.
#[derive(Debug, thiserror::Error)]
pub enum TrialError {
    /// The channel broke.
    #[error("cannot reach the guard of the trial")]
    Channel(#[from] io::Error),
    /// The guard closed the channel.
    #[error("the guard of the trial is gone")]
    GuardGone,
}

/// The end of the channel in the daemon on trial.
#[derive(Debug)]
pub struct TrialChannel(UnixStream);

impl TrialChannel {
    /// The channel of this process if it is on trial. Returns it once.
    pub fn take() -> Option<Self> {
        static TAKEN: OnceLock<()> = OnceLock::new();
        let fd = descriptor()?;
        TAKEN.set(()).ok()?;
        // SAFETY: the guard opened it for this process and named it in the environment; it is
        // taken once.
        #[allow(unsafe_code)]
        let fd = unsafe { sys::adopt(fd) }?;
        fcntl_setfd(&fd, FdFlags::CLOEXEC).ok()?;
        Some(Self(UnixStream::from(fd)))
    }

    /// True if this process is on trial.
    pub fn is_open() -> bool {
        descriptor().is_some_and(|fd| {
            std::fs::read_link(format!("/proc/self/fd/{fd}")).is_ok_and(|target| {
                target
                    .as_os_str()
                    .as_encoded_bytes()
                    .starts_with(b"socket:")
            })
        })
    }

    /// Reports that the daemon is healthy, and waits until the guard has recorded it. The daemon
    /// then hands over: the guard becomes the daemon. Blocks.
    pub fn healthy(&mut self) -> Result<(), TrialError> {
        writeln!(self.0, "{HEALTHY}")?;
        let mut line = String::new();
        BufReader::new(&self.0).read_line(&mut line)?;
        match line.trim_end() {
            CONFIRMED => Ok(()),
            _ => Err(TrialError::GuardGone),
        }
    }

    /// Reports that the daemon must not be kept. The guard ends this process.
    pub fn failed(&mut self, reason: &str) -> Result<(), TrialError> {
        writeln!(self.0, "{FAILED}{}", one_line(reason))?;
        Ok(())
    }
}

fn descriptor() -> Option<RawFd> {
    std::env::var(TRIAL_VARIABLE).ok()?.parse().ok()
}

pub(crate) fn one_line(reason: &str) -> String {
    let plain = reason.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(MAX_REASON_CHARS).collect()
}

/// Makes a channel. The second end stays open in children.
pub(crate) fn channel() -> io::Result<(UnixStream, UnixStream)> {
    let (guard, daemon) = UnixStream::pair()?;
    fcntl_setfd(daemon.as_fd(), FdFlags::empty())?;
    Ok((guard, daemon))
}

pub(crate) fn number(stream: &UnixStream) -> String {
    stream.as_raw_fd().to_string()
}
