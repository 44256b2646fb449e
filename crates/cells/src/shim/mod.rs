//! The shim: the supervisor of every cell.
//!
//! The zygote forks it into the cell's namespaces, but for the PID namespace: the `/proc` of the cell
//! shows neither the shim nor the file descriptors it holds. PID 1 inside is a child of the shim that holds nothing ([`init`]). The shim reaps the executables it starts,
//! writes their output to the journal's log files with the time of each line, and writes their exit
//! codes to disk. It needs no daemon for that: the daemon may exit and come back.

mod attachable;
pub(crate) mod attachment;
mod control;
mod event_loop;
mod init;
mod isolate;
mod oom_kills;
mod output_log;
mod output_pipe;
pub(crate) mod protocol;
mod pty;
mod spawn;
mod supervised;

use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

pub(crate) use init::INIT_NAME;
pub(crate) use isolate::restrict_proc;
use nix::sched::CloneFlags;
use rustix::process::DumpableBehavior;
use serde::{Deserialize, Serialize};

use crate::name::CellName;
use crate::spec::Namespace;
use crate::sys;
use crate::zygote::masks::Masks;
use crate::zygote::next_namespaces::HostNamespaces;

/// The cell a shim is forked for.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ShimSpec {
    pub(crate) cell: CellName,
    /// Distinguishes the cell from an earlier one of that name.
    pub(crate) allocated: i64,
    pub(crate) hostname: String,
    pub(crate) share: BTreeSet<Namespace>,
    /// Whether a v2 cgroup directory is among the file descriptors.
    pub(crate) unified: bool,
    /// How many v1 `cgroup.procs` are among the file descriptors.
    pub(crate) procs: usize,
    /// The highest PID in the cell's PID namespace, where no cgroup limits its processes.
    pub(crate) pid_max: Option<u32>,
    /// Whether the mounts are the host's as they are, with nothing hidden.
    pub(crate) unconfined: bool,
}

/// The file descriptors that come with a [`ShimSpec`], in this order.
pub(crate) struct ShimFds {
    pub(crate) control: UnixListener,
    /// The directory of executable records.
    pub(crate) records: OwnedFd,
    /// The directory of logs.
    pub(crate) logs: OwnedFd,
    pub(crate) unified: Option<OwnedFd>,
    pub(crate) procs: Vec<OwnedFd>,
}

/// File descriptors of the host that a shim holds. No process inside its cell sees the shim, unless
/// the cell shares the host's mounts, and with them its `/proc`.
pub(crate) struct HostFds {
    /// A mount namespace that follows the host's, without the hidden directories.
    pub(crate) mounts: File,
    /// `/proc`, opened before it was changed.
    pub(crate) proc: File,
    pub(crate) masks: Masks,
    pub(crate) namespaces: HostNamespaces,
}

impl ShimSpec {
    /// The clone flags of the fork.
    ///
    /// Without the PID namespace, which the shim creates for its children alone, and without the
    /// cgroup namespace: its root is the cgroup of the process that creates it, and the shim is
    /// outside the cell's cgroup. Each executable creates its own.
    pub(crate) fn clone_flags(&self) -> c_int {
        self.own(Namespace::Mount, CloneFlags::CLONE_NEWNS).bits()
    }

    /// The cell's own namespaces that the shim inherits from the zygote.
    pub(crate) fn inherited_namespaces(&self) -> CloneFlags {
        self.own(Namespace::Ipc, CloneFlags::CLONE_NEWIPC)
            | self.own(Namespace::Uts, CloneFlags::CLONE_NEWUTS)
            | self.own(Namespace::Network, CloneFlags::CLONE_NEWNET)
    }

    fn own(&self, namespace: Namespace, flag: CloneFlags) -> CloneFlags {
        match self.share.contains(&namespace) {
            true => CloneFlags::empty(),
            false => flag,
        }
    }
}

impl ShimFds {
    /// Assigns received file descriptors; `None` if some are missing.
    pub(crate) fn new(spec: &ShimSpec, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let shim_fds = Self {
            control: UnixListener::from(fds.next()?),
            records: fds.next()?,
            logs: fds.next()?,
            unified: if spec.unified {
                Some(fds.next()?)
            } else {
                None
            },
            procs: fds.by_ref().take(spec.procs).collect(),
        };
        (shim_fds.procs.len() == spec.procs).then_some(shim_fds)
    }
}

/// Runs the shim. Returns only when it cannot continue.
///
/// # Safety
///
/// The process must have been forked for the shim alone, have one thread, and neither block a signal
/// nor have another action for one than the default, but ignore SIGCHLD.
#[allow(unsafe_code)]
pub(crate) unsafe fn run(spec: &ShimSpec, fds: ShimFds, host: &HostFds) -> io::Result<()> {
    for mut procs in fds.procs.into_iter().map(File::from) {
        procs.write_all(b"0")?;
    }
    drop(fds.unified);
    sys::wait_for_children();
    // The zygote's socket and stderr must not stay open in a shim.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mainstay-shim");
    // Processes inside can neither trace this process nor open its file descriptors in /proc.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    if spec.share.contains(&Namespace::Pid) {
        // Not PID 1 of a namespace: orphans come here only on request.
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    }
    let own_pids = !spec.share.contains(&Namespace::Pid);
    let isolated = isolate::isolate(spec, host).and_then(|()| match own_pids {
        true => init::start(spec, host).map(Some),
        false => Ok(None),
    });
    // Paths below it lead to the shim's own file descriptors and to processes by their host PIDs,
    // whatever is mounted at /proc in the cell.
    rustix::process::fchdir(&host.proc)?;
    let init = match isolated {
        Ok(init) => init,
        Err((operation, error)) => return control::refuse(&fds.control, operation, &error),
    };
    event_loop::EventLoop {
        spec,
        control: fds.control,
        records: fd_path(&fds.records),
        logs: fd_path(&fds.logs),
        init,
        init_exited: Cell::new(false),
    }
    .run()
}

/// The path of an open directory that is hidden in this mount namespace, below the host's `/proc`,
/// the working directory of a shim.
fn fd_path(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("self/fd/{}", directory.as_raw_fd()))
}
