//! The zygote: the process that all shims are forked from.
//!
//! Executing this binary for each cell would cost milliseconds and a megabyte of relocated pages.
//! The daemon instead keeps one small single-threaded process, which forks a shim in a fraction of
//! a millisecond; all shims share its pages. It exits with the daemon, the shims do not.

mod cell_mounts;
mod client;
pub(crate) mod masks;
mod mount_copy;
pub(crate) mod next_namespaces;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

use nix::sched::CloneFlags;
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

pub(crate) use client::Zygote;
pub use client::{ForkShimError, ZygoteCommand};

use crate::frame::{self, Versioned};
use crate::seccomp;
use crate::shim::{self, ShimFds, ShimSpec};
use crate::sys::{self, Forked};
use cell_mounts::CellMounts;
use masks::Failure;
use next_namespaces::NextNamespaces;

/// The version of the protocol between daemon and zygote, which are always of one build. A shim
/// that is forked ahead of its cell will send its hello in this protocol.
const VERSION: u64 = 2;

#[derive(Debug, Serialize, Deserialize)]
enum ZygoteRequest {
    /// Prepares the mounts that all cells start with.
    Prepare(HiddenPaths),
    /// Forks a shim.
    Fork(ShimSpec),
}

/// The directories that no cell may see: the daemon's state and others with private keys.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct HiddenPaths {
    pub(crate) directories: Vec<PathBuf>,
}

#[derive(Debug, Serialize, Deserialize)]
enum ZygoteReply {
    Prepared,
    Forked { pid: i32 },
    Failed { operation: String, errno: i32 },
}

/// Runs the zygote until the daemon closes the socket that is this process's standard input.
///
/// # Safety
///
/// The process must have a single thread, no value that owns a file descriptor above 2, and no
/// code that waits for children or relies on signal handlers: it is called first in `main`.
#[allow(unsafe_code)]
pub unsafe fn run() -> io::Result<()> {
    // SAFETY: the caller guarantees that nothing owns a file descriptor above 2.
    unsafe { sys::close_inherited() }?;
    // Here once for all shims and executables, which inherit it.
    // SAFETY: the caller guarantees that nothing relies on a handler or mask.
    unsafe { sys::reset_signals() }?;
    // Compiled once for all shims. A failure is reported by the first start.
    let _ = seccomp::builtin_filter();
    // A session of its own: Ctrl-C in the daemon's terminal is for the daemon.
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mainstay-shims");
    // SAFETY: neither the caller nor this loop waits for children.
    unsafe { sys::ignore_children() };
    // Children of a killed shim come here, and the kernel reaps them at once.
    let _ = rustix::process::set_child_subreaper(Pid::from_raw(1));
    // Borrowed: each shim replaces its copy of standard input, which closes it there.
    let stdin = io::stdin();
    let daemon = stdin.as_fd();
    let mut mounts = CellMounts::open()?;
    let mut next = NextNamespaces::none();
    while let Some((request, fds)) = frame::receive_versioned(daemon, VERSION)? {
        let mut taken = CloneFlags::empty();
        let (reply, pidfd) = match request {
            ZygoteRequest::Prepare(hidden) => match mounts.prepare(&hidden) {
                Ok(()) => (ZygoteReply::Prepared, None),
                Err((operation, error)) => (failed(operation, &error), None),
            },
            ZygoteRequest::Fork(spec) => match fork_shim(&spec, fds, &mut mounts, &mut next) {
                Ok((pid, pidfd)) => {
                    taken = spec.inherited_namespaces();
                    let pid = pid.as_raw_nonzero().get();
                    (ZygoteReply::Forked { pid }, Some(pidfd))
                }
                Err((operation, error)) => (failed(operation, &error), None),
            },
        };
        let pidfd: Vec<_> = pidfd.iter().map(AsFd::as_fd).collect();
        let reply = Versioned {
            version: VERSION,
            message: reply,
        };
        frame::send(daemon, &reply, &pidfd)?;
        // Those of the next shim, most likely. A failure is reported when they are needed.
        let _ = next.prepare(taken);
        mounts.wait_for(daemon);
    }
    Ok(())
}

fn failed(operation: String, error: &io::Error) -> ZygoteReply {
    ZygoteReply::Failed {
        operation,
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    }
}

/// Forks a shim; the child does not return.
#[allow(unsafe_code)]
fn fork_shim(
    spec: &ShimSpec,
    fds: Vec<OwnedFd>,
    mounts: &mut CellMounts,
    next: &mut NextNamespaces,
) -> Result<(Pid, OwnedFd), Failure> {
    let failed = |error| ("fork the shim".to_owned(), error);
    let fds = ShimFds::new(spec, fds).ok_or_else(|| failed(io::ErrorKind::InvalidData.into()))?;
    let cgroup = fds.unified.as_ref().map(AsFd::as_fd);
    let inherited = spec.inherited_namespaces();
    next.prepare(inherited)?;
    mounts.refresh()?;
    // SAFETY: the zygote has one thread, and the child below ends in `exit_now`.
    match unsafe { sys::fork_into(spec.clone_flags(), cgroup) }.map_err(failed)? {
        Forked::Parent { pid, pidfd } => {
            next.taken(inherited);
            Ok((pid, pidfd))
        }
        Forked::Child => {
            mounts.close_for_shim();
            // SAFETY: forked for this shim, from the only thread of a process without handlers but
            // the ignored SIGCHLD.
            let ran = unsafe { shim::run(spec, fds, mounts.host()) };
            sys::exit_now(i32::from(ran.is_err()))
        }
    }
}
