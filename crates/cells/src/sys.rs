//! System calls without a safe wrapper in our dependencies. All unsafe code of cells is here, but
//! for the calls of the `unsafe fn`s, whose callers state why the contract holds.
//!
//! Miri cannot check this module: it supports neither `clone3`, `close_range`, `mount_setattr` nor
//! ioctls. Pointers that the kernel reads or writes through have exposed provenance.
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
/// # Safety
///
/// The calling thread must be the only one of its process. The child has a copy of its memory but
/// no other thread: a lock that another thread held at the fork, such as the allocator's, would
/// stay locked in the child for ever.
///
/// The child must not return to code of its parent that owns resources outside the process, such
/// as a temporary file: its destructors would run twice. It ends in an exec or in [`exit_now`].
pub(crate) unsafe fn fork_into(
    clone_flags: c_int,
    cgroup: Option<BorrowedFd<'_>>,
) -> Result<Forked, io::Error> {
    let mut pidfd: c_int = -1;
    // SAFETY: a struct of integers, for which all zeros is the value "nothing asked for".
    let mut args: libc::clone_args = unsafe { mem::zeroed() };
    args.flags = widen(clone_flags | libc::CLONE_PIDFD);
    // The kernel writes through it.
    args.pidfd = ptr::from_mut(&mut pidfd).expose_provenance() as u64;
    args.exit_signal = widen(libc::SIGCHLD);
    if let Some(cgroup) = cgroup {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = widen(cgroup.as_raw_fd());
    }
    // SAFETY: without CLONE_VM the child gets a copy of the whole address space and returns from
    // here like the parent; `args` and `pidfd` outlive the call, and the size is the struct's. The
    // caller guarantees that the child can go on with its copy.
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
///
/// # Safety
///
/// No value of this process may own a file descriptor above 2: it would later use or close a
/// descriptor that is not its own (I/O safety).
pub(crate) unsafe fn close_inherited() -> io::Result<()> {
    const FIRST: u32 = 3;
    // SAFETY: the caller guarantees that nothing owns a descriptor in the range.
    let done = unsafe { libc::close_range(FIRST, u32::MAX, 0) };
    check(done)
}

/// Closes all file descriptors above 2 but these.
///
/// # Safety
///
/// As for [`close_inherited`], for all descriptors that are not in `kept`.
pub(crate) unsafe fn close_all_but(kept: &mut [BorrowedFd<'_>]) -> io::Result<()> {
    const FIRST: u32 = 3;
    kept.sort_by_key(AsRawFd::as_raw_fd);
    let mut first = FIRST;
    for fd in kept {
        let kept = fd.as_raw_fd().cast_unsigned();
        if kept > first {
            // SAFETY: the caller guarantees that nothing owns a descriptor in the range.
            check(unsafe { libc::close_range(first, kept - 1, 0) })?;
        }
        first = first.max(kept + 1);
    }
    // SAFETY: as above.
    check(unsafe { libc::close_range(first, u32::MAX, 0) })
}

/// Resets all signals to their default action, and blocks none.
///
/// # Safety
///
/// No code of this process may rely on a signal handler or mask it has installed, such as a
/// runtime that waits for SIGCHLD; called in a process just forked, before it installs any.
pub(crate) unsafe fn reset_signals() -> io::Result<()> {
    for signal in 1..=libc::SIGRTMAX() {
        if signal == libc::SIGKILL || signal == libc::SIGSTOP {
            continue;
        }
        // SAFETY: no handler is installed, only the default restored, on which nothing relies by
        // the caller's guarantee. glibc refuses the signals it reserves, which is fine.
        unsafe { libc::signal(signal, libc::SIG_DFL) };
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Blocks no signal.
///
/// # Safety
///
/// As for [`reset_signals`], for the signal mask.
pub(crate) unsafe fn unblock_signals() -> io::Result<()> {
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Stops ignoring SIGCHLD, for a process that waits for its children.
pub(crate) fn wait_for_children() {
    // SAFETY: no handler is installed; the default action is to ignore the signal, but not the
    // children.
    unsafe { libc::signal(libc::SIGCHLD, libc::SIG_DFL) };
}

/// Ignores SIGCHLD: the kernel reaps the children of this process.
///
/// # Safety
///
/// No code of this process may wait for a child: `waitpid` would block until all have exited and
/// then fail, and a PID it holds may belong to another process.
pub(crate) unsafe fn ignore_children() {
    // SAFETY: no handler is installed; nothing waits for children by the caller's guarantee.
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

/// Installs a seccomp filter in the calling thread, which must have `SYS_ADMIN`.
pub(crate) fn install_filter(program: &[seccompiler::sock_filter]) -> rustix::io::Result<()> {
    /// `struct sock_fprog` of the kernel.
    #[repr(C)]
    struct Program {
        len: u16,
        filter: *const seccompiler::sock_filter,
    }
    const SET_MODE_FILTER: libc::c_uint = 1;
    let program = Program {
        len: u16::try_from(program.len()).map_err(|_| rustix::io::Errno::INVAL)?,
        filter: program.as_ptr(),
    };
    // SAFETY: the kernel copies `len` instructions from a slice of that length, which outlives the
    // call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_seccomp,
            SET_MODE_FILTER,
            0,
            ptr::from_ref(&program),
        )
    };
    errno(done)
}

/// Gives the calling process a new, empty session keyring.
///
/// Succeeds where the kernel has no keyrings or does not let this process use them: then it cannot
/// use those of its parent either.
pub(crate) fn join_new_session_keyring() -> rustix::io::Result<()> {
    const JOIN_SESSION_KEYRING: libc::c_long = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is read.
    let joined = unsafe {
        libc::syscall(
            libc::SYS_keyctl,
            JOIN_SESSION_KEYRING,
            ptr::null::<libc::c_char>(),
        )
    };
    match errno(joined.min(0)) {
        Err(rustix::io::Errno::NOSYS | rustix::io::Errno::PERM) => Ok(()),
        joined => joined,
    }
}

fn errno(done: libc::c_long) -> rustix::io::Result<()> {
    if done == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))
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

/// Confines the calling thread, and whatever it executes, to its own processes: it can neither trace
/// nor signal any other, nor open their files through `/proc`. Returns false where the kernel cannot
/// (Landlock before ABI 6, or disabled).
pub(crate) fn confine_to_own_processes() -> io::Result<bool> {
    /// From linux/landlock.h.
    const VERSION: c_int = 1;
    const SCOPE_SIGNAL: u64 = 1 << 1;
    const FIRST_ABI_WITH_SCOPES: i64 = 6;
    #[repr(C)]
    struct Ruleset {
        handled_access_fs: u64,
        handled_access_net: u64,
        scoped: u64,
    }
    // SAFETY: without attributes it only returns the version.
    let abi = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::null::<Ruleset>(),
            0_usize,
            VERSION,
        )
    };
    if abi < FIRST_ABI_WITH_SCOPES {
        return Ok(false);
    }
    // A domain of any kind keeps its processes from tracing others. This one restricts no files.
    let ruleset = Ruleset {
        handled_access_fs: 0,
        handled_access_net: 0,
        scoped: SCOPE_SIGNAL,
    };
    // SAFETY: the struct outlives the call, and the size is its own.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_landlock_create_ruleset,
            ptr::from_ref(&ruleset),
            size_of::<Ruleset>(),
            0,
        )
    };
    let fd = c_int::try_from(fd).map_err(io::Error::other)?;
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel has just returned it, and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: no pointer is passed.
    match unsafe { libc::syscall(libc::SYS_landlock_restrict_self, fd.as_raw_fd(), 0) } {
        0 => Ok(true),
        _ => Err(io::Error::last_os_error()),
    }
}
