//! Calls that need unsafe code: the setup of a child between fork and exec, and the adoption of an
//! inherited descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use nix::sys::signal::SigSet;
use rustix::process::{Signal, set_parent_process_death_signal};

/// Has the kernel kill the child when its parent, a process of one thread, dies. Unblocks the signals
/// that the parent has blocked.
pub(crate) fn die_with_parent(command: &mut Command, blocked: SigSet) {
    // SAFETY: the closure makes two system calls; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(move || {
            blocked.thread_unblock()?;
            set_parent_process_death_signal(Some(Signal::KILL)).map_err(io::Error::from)
        });
    }
}

/// Takes the descriptor that the parent has named in an environment variable, if it is open.
///
/// # Safety
///
/// Nothing else in the process may own the descriptor.
pub(crate) unsafe fn adopt(fd: RawFd) -> Option<OwnedFd> {
    // SAFETY: `F_GETFD` reads a flag of a number that need not be open.
    let is_open = unsafe { libc::fcntl(fd, libc::F_GETFD) } >= 0;
    // SAFETY: it is open, and the caller guarantees that nothing else owns it.
    is_open.then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes the sockets that the guard has inherited this process's: their protocol names a PID.
///
/// # Safety
///
/// The process must have one thread.
pub(crate) unsafe fn take_listen_pid() {
    const VARIABLE: &str = "LISTEN_PID";
    let parent = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    if std::env::var(VARIABLE).is_ok_and(|pid| pid == parent.to_string()) {
        // SAFETY: no other thread reads the environment at the same time.
        unsafe { std::env::set_var(VARIABLE, std::process::id().to_string()) };
    }
}
