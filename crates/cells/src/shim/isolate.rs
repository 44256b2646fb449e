//! What is left to do once a shim is in its new namespaces.

use std::io;
use std::os::fd::AsFd;

use rustix::mount::{MountFlags, mount, mount_bind};
use rustix::net::{AddressFamily, SocketType, socket};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{Birth, Host};
use crate::spec::Namespace;
use crate::sys::{self, Mounts};

/// Parts of `/proc` through which root inside could change the machine.
const MACHINE_WIDE: [(&str, &std::ffi::CStr); 5] = [
    ("/proc/sys", c"/proc/sys"),
    ("/proc/sysrq-trigger", c"/proc/sysrq-trigger"),
    ("/proc/irq", c"/proc/irq"),
    ("/proc/bus", c"/proc/bus"),
    ("/proc/fs", c"/proc/fs"),
];

/// Or the step that failed, and how.
pub(super) fn isolate(birth: &Birth, host: &Host) -> Result<(), (&'static str, io::Error)> {
    let own = |namespace| !birth.share.contains(&namespace);
    if own(Namespace::Mount) {
        if own(Namespace::Pid) {
            own_proc().map_err(|error| ("mount /proc", error))?;
        }
        own_dev().map_err(|error| ("mount /dev/shm and /dev/pts", error))?;
    } else {
        let kind = Some(LinkNameSpaceType::Mount);
        move_into_link_name_space(host.mounts.as_fd(), kind)
            .map_err(|errno| ("join the host's mounts", errno.into()))?;
    }
    if own(Namespace::Uts) {
        rustix::system::sethostname(birth.hostname.as_bytes())
            .map_err(|errno| ("set the host name", errno.into()))?;
    }
    if own(Namespace::Network) {
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None);
        let socket = socket.map_err(|errno| ("open a socket", errno.into()))?;
        sys::loopback_up(socket).map_err(|error| ("start the loopback device", error))?;
    }
    Ok(())
}

fn own_proc() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None)?;
    for (path, same) in MACHINE_WIDE {
        match mount_bind(path, path) {
            // Not every kernel has all of them.
            Err(rustix::io::Errno::NOENT) => {}
            bound => {
                bound?;
                sys::change_mounts(same, Mounts::ReadOnly)?;
            }
        }
    }
    Ok(())
}

fn own_dev() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // Where the host's /dev is in use, it may lack either.
    for (kind, path, flags, options) in [
        ("tmpfs", "/dev/shm", flags, c"mode=1777"),
        (
            "devpts",
            "/dev/pts",
            MountFlags::NOSUID | MountFlags::NOEXEC,
            c"newinstance,ptmxmode=0666,mode=0620",
        ),
    ] {
        match mount(kind, path, kind, flags, options) {
            Err(rustix::io::Errno::NOENT) => {}
            mounted => mounted?,
        }
    }
    Ok(())
}
