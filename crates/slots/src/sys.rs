//! Calls that need unsafe code: the setup of a child between fork and exec, and the adoption of an
//! inherited descriptor.
#![allow(unsafe_code)]

use std::io;
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

use rustix::process::{Signal, set_parent_process_death_signal};

/// Has the kernel kill the child when its parent, a process of one thread, dies.
pub(crate) fn die_with_parent(command: &mut Command) {
    // SAFETY: the closure makes one system call; it neither allocates nor takes a lock.
    unsafe {
        command.pre_exec(|| {
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
