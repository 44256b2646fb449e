//! Bounded waits.

use std::os::fd::AsFd;
use std::process::{Child, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The bound of every wait. Reaching it is a failure, never a way to pass time: it only has to be
/// longer than the slowest success on a machine that also compiles.
pub const WAIT_TIMEOUT: Duration = Duration::from_secs(60);

/// Awaits something that must happen within [`WAIT_TIMEOUT`].
pub async fn soon<T>(what: &str, wait: impl Future<Output = T>) -> T {
    match tokio::time::timeout(WAIT_TIMEOUT, wait).await {
        Ok(value) => value,
        Err(_) => panic!("timed out after {WAIT_TIMEOUT:?} waiting for {what}"),
    }
}

/// Waits for a child to exit; kills it and panics after [`WAIT_TIMEOUT`].
#[track_caller]
pub fn wait_for_exit(child: &mut Child) -> ExitStatus {
    if let Ok(pidfd) = pidfd_open(pid_of(child), PidfdFlags::empty())
        && !wait_until_exited(&pidfd)
    {
        child.kill().unwrap();
        child.wait().unwrap();
        panic!(
            "process {} did not exit within {WAIT_TIMEOUT:?}",
            child.id()
        );
    }
    child.wait().unwrap()
}

/// Waits until the process of a pidfd, a child or not, has exited. False after [`WAIT_TIMEOUT`].
pub fn wait_until_exited(pidfd: &impl AsFd) -> bool {
    let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
    let timeout = Timespec {
        tv_sec: WAIT_TIMEOUT.as_secs().try_into().unwrap(),
        tv_nsec: 0,
    };
    poll(&mut fds, Some(&timeout)).unwrap() > 0
}

pub(crate) fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}
