//! PID 1 of a cell's PID namespace: exits with the shim, and holds nothing.
//!
//! Processes inside see it, and with `SYS_PTRACE` may trace it and open what it has open. It
//! therefore has no file descriptors but `/dev/null`, no capabilities and no path that is not the
//! cell's own.

use std::ffi::CStr;
use std::fs;
use std::io::{self, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::event::poll;
use rustix::process::{DumpableBehavior, Pid, Signal};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::{HostFds, ShimSpec, isolate};
use crate::spec::Namespace;
use crate::sys::{self, Forked};

/// The operation that failed, and its error.
type Failure = (&'static str, io::Error);

/// The name of the process, by which a daemon tells it from its shim.
pub(crate) const INIT_NAME: &CStr = c"mainstay-init";

/// The operations of the child, by the number that it reports.
const OPERATIONS: [&str; 3] = ["start PID 1", "mount /proc", "limit its PIDs"];

/// Creates the PID namespace of all further children of this process, and its PID 1.
pub(super) fn start(spec: &ShimSpec, host: &HostFds) -> Result<Pid, Failure> {
    let failed = |error: io::Error| (OPERATIONS[0], error);
    unshare(CloneFlags::CLONE_NEWPID).map_err(|errno| failed(errno.into()))?;
    let (mut reports, report) = io::pipe().map_err(failed)?;
    // SAFETY: a shim has one thread, and the child ends in `exit_now`.
    #[allow(unsafe_code)]
    let forked = unsafe { sys::fork_into(0, None) }.map_err(failed)?;
    let Forked::Parent { pid, .. } = forked else {
        drop(reports);
        run(spec, host, report)
    };
    drop(report);
    let mut reported = Vec::new();
    reports.read_to_end(&mut reported).map_err(failed)?;
    match *reported.as_slice() {
        [] => Err(failed(io::ErrorKind::BrokenPipe.into())),
        [operation, ref errno @ ..] => {
            let errno = errno.try_into().map_or(libc::EIO, i32::from_le_bytes);
            let operation = OPERATIONS.get(usize::from(operation)).copied();
            match (operation, errno) {
                (_, 0) => Ok(pid),
                (operation, errno) => Err((
                    operation.unwrap_or(OPERATIONS[0]),
                    io::Error::from_raw_os_error(errno),
                )),
            }
        }
    }
}

/// Runs PID 1, until the shim exits.
fn run(spec: &ShimSpec, host: &HostFds, mut report: PipeWriter) -> ! {
    let prepared = prepare(spec, host);
    let (operation, errno) = match &prepared {
        Ok(()) => (0, 0),
        Err((operation, error)) => (*operation, error.raw_os_error().unwrap_or(libc::EIO)),
    };
    let mut message = vec![operation];
    message.extend_from_slice(&errno.to_le_bytes());
    // Fails if the shim has exited before its death was to be signalled.
    if report.write_all(&message).is_err() || prepared.is_err() {
        sys::exit_now(1);
    }
    // SAFETY: nothing of this process uses a file descriptor any more, and it never returns to the
    // code that owns them.
    #[allow(unsafe_code)]
    let closed = unsafe { sys::close_inherited() };
    if closed.is_err() {
        sys::exit_now(1);
    }
    loop {
        // The kernel reaps all children.
        let _ = poll(&mut [], None);
    }
}

fn prepare(spec: &ShimSpec, host: &HostFds) -> Result<(), (u8, io::Error)> {
    let failed = |operation: u8| move |error: io::Error| (operation, error);
    let errno = |operation: u8| move |errno: rustix::io::Errno| (operation, errno.into());
    // SAFETY: this process waits for no child.
    #[allow(unsafe_code)]
    unsafe {
        sys::ignore_children();
    }
    let _ = rustix::thread::set_name(INIT_NAME);
    rustix::process::chdir("/").map_err(errno(0))?;
    if !spec.share.contains(&Namespace::Mount) {
        // A /proc that is writable for a moment: the limit of PIDs is set through it.
        isolate::mount_proc(spec, || set_pid_max(spec, Path::new("/proc"))).map_err(
            |(limit, error)| {
                let operation = if limit { 2 } else { 1 };
                failed(operation)(error)
            },
        )?;
    } else {
        // The host's /proc is read-only in these mounts. The limit is that of the writer's namespace.
        let proc = format!("/proc/self/fd/{}", host.proc.as_raw_fd());
        set_pid_max(spec, Path::new(&proc)).map_err(failed(2))?;
    }
    rustix::thread::set_no_new_privs(true).map_err(errno(0))?;
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none).map_err(errno(0))?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(errno(0))?;
    // After the credentials: a change of them may clear it.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL)).map_err(errno(0))
}

/// Limits the PIDs of this namespace. Only where the kernel has a limit per namespace: before Linux
/// 6.14 this would change the machine's.
fn set_pid_max(spec: &ShimSpec, proc: &Path) -> io::Result<()> {
    match spec.pid_max {
        Some(max) => fs::write(proc.join("sys/kernel/pid_max"), max.to_string()),
        None => Ok(()),
    }
}
