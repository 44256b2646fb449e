//! Set-up of a shim's namespaces: mounts, host name, and those that the cell shares.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::CWD;
use rustix::mount::{
    MountFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags, mount, mount_bind,
    mount_change, move_mount, open_tree,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{HostFds, ShimSpec};
use crate::spec::Namespace;
use crate::sys::{self, MountRestriction};
use crate::zygote::masks::View;

/// Parts of `/proc` through which root inside could change the machine; mounted read-only.
const HOST_WIDE_PROC: [(&str, &std::ffi::CStr); 5] = [
    ("/proc/sys", c"/proc/sys"),
    ("/proc/sysrq-trigger", c"/proc/sysrq-trigger"),
    ("/proc/irq", c"/proc/irq"),
    ("/proc/bus", c"/proc/bus"),
    ("/proc/fs", c"/proc/fs"),
];

/// Sets up the namespaces; fails with the operation that failed and its error.
pub(super) fn isolate(spec: &ShimSpec, host: &HostFds) -> Result<(), (&'static str, io::Error)> {
    let own = |namespace| !spec.share.contains(&namespace);
    for shared in &spec.share {
        // The zygote has left the host's.
        let joined = host.namespaces.join(*shared);
        joined.map_err(|errno| ("join the namespaces of the host", errno.into()))?;
    }
    if spec.unconfined {
        if own(Namespace::Mount) {
            // Mounts of the host appear here too, none go the other way.
            let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
            mount_change("/", slave)
                .map_err(|errno| ("change the mount propagation", errno.into()))?;
            if own(Namespace::Network) {
                mount_sys().map_err(|error| ("mount /sys", error))?;
            }
        }
    } else if own(Namespace::Mount) {
        // A copy of that of the zygote, which is private, with everything masked.
        mount_dev().map_err(|error| ("mount /dev/shm and /dev/pts", error))?;
        if own(Namespace::Network) {
            mount_sys().map_err(|error| ("mount /sys", error))?;
        }
    } else {
        let kind = Some(LinkNameSpaceType::Mount);
        move_into_link_name_space(host.mounts.as_fd(), kind)
            .map_err(|errno| ("join the host's mounts", errno.into()))?;
        host.masks
            .apply(View::Host)
            .map_err(|(_, error)| ("mask the mounts of the host", error))?;
    }
    if own(Namespace::Uts) {
        rustix::system::sethostname(spec.hostname.as_bytes())
            .map_err(|errno| ("set the host name", errno.into()))?;
    }
    Ok(())
}

/// Mounts the `/proc` of the calling process's PID namespace, and calls `change` before the
/// host-wide parts of it become read-only; fails with whether `change` has failed.
pub(super) fn mount_proc(
    spec: &ShimSpec,
    change: impl FnOnce() -> io::Result<()>,
) -> Result<(), (bool, io::Error)> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(|errno| (false, errno.into()))?;
    change().map_err(|error| (true, error))?;
    if spec.unconfined {
        return Ok(());
    }
    restrict_proc().map_err(|error| (false, error))
}

/// Makes the host-wide parts of `/proc` read-only.
pub(crate) fn restrict_proc() -> io::Result<()> {
    for (path, c_path) in HOST_WIDE_PROC {
        match mount_bind(path, path) {
            // Not every kernel has all of them.
            Err(rustix::io::Errno::NOENT) => {}
            bound => {
                bound?;
                sys::restrict_mounts(c_path, MountRestriction::ReadOnly)?;
            }
        }
    }
    Ok(())
}

/// Mounts a sysfs of the cell's own network namespace, read-only: that of the host shows the host's
/// network devices. The cgroup file systems below `/sys` stay.
fn mount_sys() -> io::Result<()> {
    const CGROUPS: &str = "/sys/fs/cgroup";
    if !std::path::Path::new("/sys/fs").exists() {
        // A root file system without sysfs has nothing to replace.
        return Ok(());
    }
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE;
    let cgroups = open_tree(CWD, CGROUPS, flags);
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RDONLY;
    mount("sysfs", "/sys", "sysfs", flags, None)?;
    match cgroups {
        Ok(cgroups) => {
            let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
            Ok(move_mount(&cgroups, "", CWD, CGROUPS, flags)?)
        }
        Err(rustix::io::Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn mount_dev() -> io::Result<()> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    // The host's /dev, where it is shared, may lack either.
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
