//! The first process of every cell.
//!
//! Forked from the zygote into the cell's namespaces, it does what nobody else can do for those
//! it starts: it reaps them, writes their output to the journal's files with the time of each
//! line, and keeps how they ended. It needs nobody for that; the daemon may come and go.

mod control;
mod executable;
mod execute;
mod isolate;
mod live;
mod output;
pub(crate) mod protocol;

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use rustix::process::DumpableBehavior;
use serde::{Deserialize, Serialize};

use crate::name::CellName;
use crate::spec::Namespace;
use crate::sys;

/// What a shim is born with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Birth {
    pub(crate) cell: CellName,
    pub(crate) hostname: String,
    pub(crate) share: BTreeSet<Namespace>,
    /// Whether a control group of version 2 is handed over.
    pub(crate) unified: bool,
    /// How many `cgroup.procs` of version 1 are.
    pub(crate) procs: usize,
}

/// The descriptors that come with a [`Birth`], in this order.
pub(crate) struct Handed {
    pub(crate) control: UnixListener,
    /// Where records of executables are kept.
    pub(crate) records: OwnedFd,
    /// Where logs are kept.
    pub(crate) logs: OwnedFd,
    pub(crate) unified: Option<OwnedFd>,
    pub(crate) procs: Vec<OwnedFd>,
}

/// What is the host's, kept open from before there was any cell.
pub(crate) struct Host {
    pub(crate) mounts: File,
    pub(crate) proc: File,
}

impl Birth {
    /// As flags of the system call. Control groups come later: a namespace of them begins where
    /// its maker is, which is not in the cell yet.
    pub(crate) fn namespaces(&self) -> c_int {
        let own = |namespace, flag| {
            if self.share.contains(&namespace) {
                0
            } else {
                flag
            }
        };
        own(Namespace::Pid, libc::CLONE_NEWPID)
            | own(Namespace::Mount, libc::CLONE_NEWNS)
            | own(Namespace::Ipc, libc::CLONE_NEWIPC)
            | own(Namespace::Uts, libc::CLONE_NEWUTS)
            | own(Namespace::Network, libc::CLONE_NEWNET)
    }
}

impl Handed {
    pub(crate) fn take(birth: &Birth, fds: Vec<OwnedFd>) -> Option<Self> {
        let mut fds = fds.into_iter();
        let handed = Self {
            control: UnixListener::from(fds.next()?),
            records: fds.next()?,
            logs: fds.next()?,
            unified: if birth.unified {
                Some(fds.next()?)
            } else {
                None
            },
            procs: fds.by_ref().take(birth.procs).collect(),
        };
        (handed.procs.len() == birth.procs).then_some(handed)
    }
}

/// The whole life of a shim. Returns only when it cannot go on.
pub(crate) fn live(birth: &Birth, handed: Handed, host: &Host) -> io::Result<()> {
    for mut procs in handed.procs.into_iter().map(File::from) {
        procs.write_all(b"0")?;
    }
    drop(handed.unified);
    sys::reset_signals()?;
    // The zygote's socket and output are not ours to hold.
    let null = File::options().read(true).write(true).open("/dev/null")?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    drop(null);
    let _ = rustix::process::setsid();
    let _ = rustix::thread::set_name(c"mainstay-shim");
    // Whoever is inside cannot look into this process or at what it has open.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    if birth.share.contains(&Namespace::Pid) {
        // Not the first process here, but the one that reaps.
        rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))?;
    }
    if let Err((what, error)) = isolate::isolate(birth, host) {
        return control::refuse(&handed.control, what, &error);
    }
    live::Shim {
        birth,
        control: handed.control,
        records: through(&handed.records),
        logs: through(&handed.logs),
        host,
    }
    .run()
}

/// A directory that cannot be reached by its name any more.
fn through(directory: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", directory.as_raw_fd()))
}
