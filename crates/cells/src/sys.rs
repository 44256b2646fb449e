//! System calls without a safe wrapper in our dependencies. All unsafe code of cells is here.
#![allow(unsafe_code)]

use std::ffi::{CStr, c_int};
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use nix::sys::signal::{SigSet, SigmaskHow, sigprocmask};
use rustix::process::Pid;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// From linux/sched.h; libc's constant is an `int`, too narrow for it.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The two sides of a fork.
#[derive(Debug)]
pub(crate) enum Forked {
    Child,
    Parent { pid: Pid, pidfd: OwnedFd },
}

/// Forks with new namespaces, and into a v2 cgroup if one is given.
///
/// The caller must be the only thread of its process: the child has a copy of its memory and
/// may use it freely, allocation included, only because nobody else can have held a lock.
pub(crate) fn fork_into(
    clone_flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Forked, io::Error> {
    let mut pidfd: c_int = -1;
    // SAFETY: a struct of integers, for which all zeros is the value "nothing asked for".
    let mut args: libc::clone_args = unsafe { mem::zeroed() };
    args.flags = widen(clone_flags | libc::CLONE_PIDFD);
    args.pidfd = ptr::from_mut(&mut pidfd).addr() as u64;
    args.exit_signal = widen(libc::SIGCHLD);
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = widen(cgroup.as_raw_fd());
    }
    // SAFETY: without CLONE_VM the child gets a copy of the whole address space and returns from
    // here like the parent; `args` and `pidfd` outlive the call, and the size is the struct's.
    let pid = unsafe {
        libc::syscall(
            libc::SYS_clone3,
            ptr::from_mut(&mut args),
            size_of::<libc::clone_args>(),
        )
    };
    match i32::try_from(pid) {
        Ok(0) => Ok(Forked::Child),
        Ok(pid) if pid > 0 => {
            let pid = Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
            // SAFETY: the kernel made this descriptor for the parent alone.
            let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
            Ok(Forked::Parent { pid, pidfd })
        }
        _ => Err(io::Error::last_os_error()),
    }
}

fn widen(value: c_int) -> u64 {
    u64::from(value.cast_unsigned())
}

/// Exits this process at once: no destructor or atexit handler of its parent runs in it.
pub(crate) fn exit_now(code: c_int) -> ! {
    // SAFETY: takes no memory and never returns.
    unsafe { libc::_exit(code) }
}

/// Closes all inherited file descriptors but stdin, stdout and stderr: the daemon may have
/// inherited some itself, and shims would keep them open.
pub(crate) fn close_inherited() -> io::Result<()> {
    const FIRST: u32 = 3;
    // SAFETY: called before this process has opened anything itself, so that no value in it owns
    // a descriptor in the range.
    let done = unsafe { libc::close_range(FIRST, u32::MAX, 0) };
    check(done)
}

/// Resets all signals to their default action, and blocks none.
pub(crate) fn reset_signals() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: no handler is installed, only the default taken up again. Numbers that the
        // C library keeps for itself are refused, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Ignores SIGCHLD: the kernel reaps the children of this process.
pub(crate) fn ignore_children() {
    // SAFETY: no handler is installed.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_IGN) };
}

/// A restriction of mounts, in this mount namespace alone.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MountRestriction {
    ReadOnly,
    /// Device nodes cannot be opened.
    NoDevices,
}

/// Restricts a mount and everything mounted below it.
pub(crate) fn restrict_mounts(path: &CStr, restriction: MountRestriction) -> io::Result<()> {
    /// `struct mount_attr` of the kernel.
    #[repr(C)]
    struct MountAttr {
        set: u64,
        clear: u64,
        propagation: u64,
        user_namespace: u64,
    }
    const RECURSIVE: c_int = 0x8000;
    let attributes = MountAttr {
        set: match restriction {
            MountRestriction::ReadOnly => 1,
            MountRestriction::NoDevices => 4,
        },
        clear: 0,
        propagation: 0,
        user_namespace: 0,
    };
    // SAFETY: the path is NUL-terminated, the struct outlives the call, the size is its own.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            RECURSIVE,
            ptr::from_ref(&attributes),
            size_of_val(&attributes),
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Brings up the loopback device of this network namespace.
pub(crate) fn loopback_up(socket: impl AsFd) -> io::Result<()> {
    // SAFETY: a struct of integers and bytes, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    const UP: libc::c_short = 1;
    request.ifr_ifru.ifru_flags = UP;
    let fd = socket.as_fd().as_raw_fd();
    // SAFETY: the request is what this command reads, and outlives the call.
    let done = unsafe { libc::ioctl(fd, libc::SIOCSIFFLAGS, ptr::from_ref(&request)) };
    check(done)
}

/// Waits until the process of a pidfd has exited.
pub(crate) async fn until_exited(pidfd: OwnedFd) -> io::Result<()> {
    // SAFETY: the descriptor is owned here alone; dropping `exited` deregisters it from the
    // runtime before it is closed.
    let exited = unsafe { AsyncFd::register_with_interest(pidfd, Interest::READABLE) }?;
    exited.readable().await.map(drop)
}

fn check(done: c_int) -> io::Result<()> {
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
