//! The network, IPC and UTS namespaces of the next shim, created ahead of its fork.
//!
//! The zygote itself enters them, and the shim inherits them: a network namespace takes longer to
//! create than all the rest of a fork, and so no start waits for it while the zygote keeps up.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;

use nix::sched::{CloneFlags, unshare};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::masks::Failure;
use crate::spec::Namespace;
use crate::sys;

/// The namespaces of the zygote that no process has used yet.
#[derive(Debug)]
pub(super) struct NextNamespaces {
    unused: CloneFlags,
}

/// The namespaces of the host, for shims that share one.
#[derive(Debug)]
pub(crate) struct HostNamespaces {
    /// `None` where the kernel has no such namespaces: then all processes share one.
    network: Option<File>,
    ipc: Option<File>,
    uts: Option<File>,
}

impl NextNamespaces {
    /// None yet: a node without cells has no namespace of cells.
    pub(super) fn none() -> Self {
        Self {
            unused: CloneFlags::empty(),
        }
    }

    /// Creates these that are not there yet.
    pub(super) fn prepare(&mut self, namespaces: CloneFlags) -> Result<(), Failure> {
        let missing = namespaces.difference(self.unused);
        if missing.is_empty() {
            return Ok(());
        }
        let failed = |operation: &str, error: io::Error| (operation.to_owned(), error);
        unshare(missing)
            .map_err(|errno| failed("create the namespaces of a cell", errno.into()))?;
        if missing.contains(CloneFlags::CLONE_NEWNET) {
            let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)
                .map_err(|errno| failed("open a socket", errno.into()))?;
            sys::loopback_up(socket)
                .map_err(|error| failed("bring up the loopback device", error))?;
        }
        self.unused.insert(missing);
        Ok(())
    }

    /// Notes that they belong to a shim that was just forked.
    pub(super) fn taken(&mut self, namespaces: CloneFlags) {
        self.unused.remove(namespaces);
    }
}

impl HostNamespaces {
    /// Opens them before any is left.
    pub(super) fn open() -> Self {
        // Of the calling thread: namespaces belong to threads.
        let open = |kind| File::open(format!("/proc/thread-self/ns/{kind}")).ok();
        Self {
            network: open("net"),
            ipc: open("ipc"),
            uts: open("uts"),
        }
    }

    /// Moves the calling process into the host's namespace of this kind.
    pub(crate) fn join(&self, namespace: Namespace) -> rustix::io::Result<()> {
        let (file, kind) = match namespace {
            Namespace::Network => (&self.network, LinkNameSpaceType::Network),
            Namespace::Ipc => (&self.ipc, LinkNameSpaceType::InterProcessCommunication),
            Namespace::Uts => (&self.uts, LinkNameSpaceType::HostNameAndNISDomainName),
            Namespace::Mount | Namespace::Pid | Namespace::Cgroup => return Ok(()),
        };
        match file {
            Some(file) => move_into_link_name_space(file.as_fd(), Some(kind)),
            None => Ok(()),
        }
    }
}
