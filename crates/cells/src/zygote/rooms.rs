//! The mounts that all cells begin with, made once: each cell's mount namespace is a copy.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sched::{CloneFlags, unshare};
use rustix::fs::{CWD, FileType, Mode, makedev, mkdirat, mknodat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags,
    fsconfig_create, fsconfig_set_string, fsmount, fsopen, mount_bind, mount_change, move_mount,
};

use super::Hidden;
use crate::shim::Host;
use crate::sys::{self, Mounts};

/// Which step went wrong, and how.
type Failure = (String, io::Error);

pub(super) struct Rooms {
    host: Host,
    prepared: bool,
}

impl Rooms {
    /// Remembers what is the host's before anything is changed.
    pub(super) fn open() -> io::Result<Self> {
        Ok(Self {
            host: Host {
                mounts: File::open("/proc/self/ns/mnt")?,
                proc: File::open("/proc")?,
            },
            prepared: false,
        })
    }

    pub(super) fn host(&self) -> &Host {
        &self.host
    }

    pub(super) fn prepare(&mut self, hidden: &Hidden) -> Result<(), Failure> {
        if self.prepared {
            return Ok(());
        }
        unshare(CloneFlags::CLONE_NEWNS)
            .map_err(|error| ("have mounts of its own".to_owned(), error.into()))?;
        // What the host mounts or unmounts later is seen here; nothing goes the other way.
        let slave = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
        mount_change("/", slave).map_err(failure("separate mounts", Path::new("/")))?;
        // From here on the state cannot be reached by its path. Before /dev is replaced, below which
        // it may be.
        mount_bind(&hidden.cover, &hidden.state).map_err(failure("cover", &hidden.state))?;
        read_only(&hidden.state).map_err(|error| ("cover the state".to_owned(), error))?;
        small_dev().map_err(|errno| failure("fill", Path::new("/dev"))(errno))?;
        // All cells have the same one: none may take from the others what is in it. The devices
        // themselves are written to as before.
        let dev = Path::new("/dev");
        read_only(dev).map_err(|error| ("make /dev read-only".to_owned(), error))?;
        let sys = Path::new("/sys");
        read_only(sys).map_err(|error| ("make /sys read-only".to_owned(), error))?;
        self.prepared = true;
        Ok(())
    }
}

fn failure(what: &str, path: &Path) -> impl FnOnce(Errno) -> Failure + use<> {
    let what = format!("{what} {}", path.display());
    move |errno| (what, errno.into())
}

fn read_only(path: &Path) -> io::Result<()> {
    sys::change_mounts(
        &CString::new(path.as_os_str().as_bytes())?,
        Mounts::ReadOnly,
    )
}

/// Only devices that give nobody power over the machine: a cell's root may open every device
/// that has a name.
fn small_dev() -> Result<(), Errno> {
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
            // A daemon that may not make devices is in a container, whose /dev is small already.
            Err(Errno::PERM) => return Ok(()),
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
    // Devices may have names elsewhere too, such as below the root of a container.
    sys::change_mounts(c"/", Mounts::WithoutDevices)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    move_mount(
        &dev,
        "",
        CWD,
        "/dev",
        MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH,
    )
}
