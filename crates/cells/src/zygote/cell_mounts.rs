//! The mounts that all cells start with, prepared once.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode, OFlags, makedev, mkdirat, mknodat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    OpenTreeFlags, UnmountFlags, fsconfig_create, fsconfig_set_string, fsmount, fsopen,
    mount_change, move_mount, open_tree, unmount,
};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::HiddenPaths;
use super::masks::{Failure, Masks, View};
use super::mount_copy::MountCopy;
use super::next_namespaces::HostNamespaces;
use crate::shim::{HostFds, restrict_proc};
use crate::sys::{self, MountRestriction};

/// Of the calling thread: namespaces belong to threads.
pub(super) const OWN_NAMESPACE: &str = "/proc/thread-self/ns/mnt";

pub(super) struct CellMounts {
    host: HostFds,
    /// Missing until it is prepared.
    copy: Option<MountCopy>,
}

impl CellMounts {
    /// Opens the host's `/proc` and namespaces before anything is changed.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            host: HostFds {
                mounts: File::open(OWN_NAMESPACE)?,
                proc: File::open("/proc")?,
                masks: Masks::default(),
                namespaces: HostNamespaces::open(),
            },
            copy: None,
        })
    }

    pub(super) fn host(&self) -> &HostFds {
        &self.host
    }

    /// Masks what the host has mounted since the last time.
    pub(super) fn refresh(&mut self) -> Result<(), Failure> {
        match &mut self.copy {
            Some(copy) => copy.refresh(&self.host.masks),
            None => Ok(()),
        }
    }

    /// Waits until `other` is readable.
    pub(super) fn wait_for(&mut self, other: BorrowedFd<'_>) {
        if let Some(copy) = &mut self.copy {
            // The next refresh reports what is wrong.
            let _ = copy.wait_for(other);
        }
    }

    /// Closes what a shim does not need, so that it keeps no mounts but its own.
    pub(super) fn close_for_shim(&mut self) {
        self.copy = None;
    }

    /// Prepares two mount namespaces: the host's mounts without the hidden directories, for cells
    /// that share them; and one with a minimal `/dev`, `/sys` read-only, and everything else masked
    /// that a cell may not see, of which this process gets a copy.
    pub(super) fn prepare(&mut self, hidden: &HiddenPaths) -> Result<(), Failure> {
        if self.copy.is_some() {
            return Ok(());
        }
        self.host.masks = Masks::find(&hidden.directories)
            .map_err(|error| ("read the mount table".to_owned(), error))?;
        new_namespace()?;
        // Slave propagation: later mounts of the host appear here, none go the other way.
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        let changed = mount_change("/", slave);
        // Not a mount point: the daemon runs in a chroot.
        let in_chroot = changed == Err(Errno::INVAL);
        if in_chroot {
            mount_chroot(slave).map_err(failure("mount", Path::new("/")))?;
        } else {
            changed.map_err(failure("change the mount propagation of", Path::new("/")))?;
        }
        self.host.masks.apply(View::Host)?;
        restrict_proc().map_err(|error| ("restrict /proc".to_owned(), error))?;
        self.host.mounts = File::open(OWN_NAMESPACE)
            .map_err(|error| ("open the mount namespace".to_owned(), error))?;
        new_namespace()?;
        // Before /dev is replaced, below which the state directory may be.
        self.host.masks.apply(View::Cell)?;
        self.host.masks.own_dev =
            mount_minimal_dev().map_err(|errno| failure("populate", Path::new("/dev"))(errno))?;
        // All cells share it: none may remove a device node. The devices stay writable.
        let dev = Path::new("/dev");
        read_only(dev).map_err(|error| ("make /dev read-only".to_owned(), error))?;
        match read_only(Path::new("/sys")) {
            // A plain directory of a chroot: it shows nothing of the kernel.
            Err(error)
                if in_chroot
                    && matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOENT)) => {}
            restricted => restricted.map_err(|error| ("make /sys read-only".to_owned(), error))?,
        }
        self.copy = Some(MountCopy::of_current(&self.host.masks)?);
        Ok(())
    }
}

/// Makes the root directory of a chroot the root of this mount namespace, as a copy on top of
/// itself: only a mount point has a propagation and attributes. Nothing else stays mounted, because
/// root in a cell may leave a chroot.
fn mount_chroot(slave: MountPropagationFlags) -> Result<(), Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = rustix::fs::open("/", flags, Mode::empty())?;
    // Joining a mount namespace, even the current one, leaves the chroot: from the real root the
    // propagation of all mounts can be changed, so that nothing below is seen by the host.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let own = rustix::fs::open(OWN_NAMESPACE, flags, Mode::empty())?;
    move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Mount))?;
    mount_change("/", slave)?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE
        | OpenTreeFlags::OPEN_TREE_CLOEXEC
        | OpenTreeFlags::AT_RECURSIVE
        | OpenTreeFlags::AT_EMPTY_PATH;
    let copy = open_tree(&root, "", flags)?;
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    move_mount(&copy, "", &root, "", flags)?;
    rustix::process::fchdir(&copy)?;
    // The old root is then mounted on top of the new one, where it is detached.
    rustix::process::pivot_root(".", ".")?;
    unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

pub(super) fn new_namespace() -> Result<(), Failure> {
    unshare(CloneFlags::CLONE_NEWNS)
        .map_err(|error| ("create a mount namespace".to_owned(), error.into()))
}

pub(super) fn failure(operation: &str, path: &Path) -> impl FnOnce(Errno) -> Failure + use<> {
    let operation = format!("{operation} {}", path.display());
    move |errno| (operation, errno.into())
}

fn read_only(path: &Path) -> io::Result<()> {
    sys::restrict_mounts(
        &CString::new(path.as_os_str().as_bytes())?,
        MountRestriction::ReadOnly,
    )
}

/// Mounts a `/dev` with harmless devices only: root inside a cell may open every device node.
/// Returns whether it has, which needs the permission for mknod.
fn mount_minimal_dev() -> Result<bool, Errno> {
    let file_system = fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_set_string(&file_system, "mode", "0755")?;
    fsconfig_set_string(&file_system, "size", "64k")?;
    fsconfig_create(&file_system)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    let dev: OwnedFd = fsmount(&file_system, FsMountFlags::FSMOUNT_CLOEXEC, attributes)?;
    for (name, major, minor) in [
        ("null", 1, 3),
        ("zero", 1, 5),
        ("full", 1, 7),
        ("random", 1, 8),
        ("urandom", 1, 9),
        ("tty", 5, 0),
    ] {
        let mode = Mode::from_raw_mode(0o666);
        match mknodat(
            &dev,
            name,
            FileType::CharacterDevice,
            mode,
            makedev(major, minor),
        ) {
            // Without permission for mknod the daemon is in a container, whose /dev is minimal.
            Err(Errno::PERM) => return Ok(false),
            made => made?,
        }
        rustix::fs::chmodat(&dev, name, mode, rustix::fs::AtFlags::empty())?;
    }
    for (name, target) in [
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
        ("ptmx", "pts/ptmx"),
    ] {
        symlinkat(target, &dev, name)?;
    }
    for name in ["pts", "shm"] {
        mkdirat(&dev, name, Mode::from_raw_mode(0o755))?;
    }
    // Device nodes may exist elsewhere too, such as in a container's root file system.
    sys::restrict_mounts(c"/", MountRestriction::NoDevices)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    move_mount(
        &dev,
        "",
        CWD,
        "/dev",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )?;
    Ok(true)
}
