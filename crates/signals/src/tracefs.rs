//! tracefs, mounted for this process alone: a mount that is attached nowhere, so that the machine's
//! mount table does not change. Where that is not allowed, the mount of the machine.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstatfs, mkdirat, open, openat, unlinkat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};

use crate::SignalsError;

const MOUNT_POINT: &str = "/sys/kernel/tracing";
/// From linux/magic.h.
const TRACEFS_MAGIC: u64 = 0x7472_6163;
/// Files of tracefs that are read whole are far smaller.
const MAX_FILE_BYTES: usize = 64 << 10;

#[derive(Debug)]
pub(crate) struct TraceFs {
    root: OwnedFd,
}

impl TraceFs {
    pub(crate) fn open() -> Result<Self, SignalsError> {
        match detached() {
            Ok(root) => Ok(Self { root }),
            Err(error) => match mounted() {
                Some(root) => Ok(Self { root }),
                None => Err(unsupported(error)),
            },
        }
    }

    pub(crate) fn root(&self) -> &OwnedFd {
        &self.root
    }

    pub(crate) fn create_instance(&self, name: &str) -> Result<OwnedFd, SignalsError> {
        let path = format!("instances/{name}");
        let failed = |source: Errno| SignalsError::Instance {
            action: format!("create {path}"),
            source: source.into(),
        };
        match mkdirat(&self.root, &path, Mode::RWXU) {
            Ok(()) => {}
            Err(error @ (Errno::PERM | Errno::ACCESS | Errno::ROFS)) => {
                return Err(unsupported(error));
            }
            Err(error) => return Err(failed(error)),
        }
        openat(
            &self.root,
            &path,
            OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )
        .map_err(failed)
    }

    pub(crate) fn remove_instance(&self, name: &str) -> io::Result<()> {
        let path = format!("instances/{name}");
        Ok(unlinkat(&self.root, path, AtFlags::REMOVEDIR)?)
    }

    pub(crate) fn remove_instances(&self, prefix: &str) -> io::Result<()> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
        let instances = openat(&self.root, "instances", flags, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::read_from(&instances)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if name.starts_with(prefix) {
                names.push(name);
            }
        }
        for name in names {
            self.remove_instance(&name)?;
        }
        Ok(())
    }
}

fn detached() -> Result<OwnedFd, Errno> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let attributes = MountAttrFlags::MOUNT_ATTR_NOSUID
        | MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC;
    fsmount(&context, FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

fn mounted() -> Option<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = open(MOUNT_POINT, flags, Mode::empty()).ok()?;
    let found = fstatfs(&root).ok()?.f_type;
    (u64::try_from(found).ok()? == TRACEFS_MAGIC).then_some(root)
}

fn unsupported(error: Errno) -> SignalsError {
    let why = match error {
        Errno::NODEV => "this kernel has no tracefs",
        Errno::PERM | Errno::ACCESS => "the daemon may not use tracefs; it needs CAP_SYS_ADMIN",
        _ => "tracefs cannot be mounted",
    };
    SignalsError::Unsupported {
        why,
        source: Some(error.into()),
    }
}

pub(crate) fn read(dir: &OwnedFd, path: impl AsRef<Path>) -> io::Result<String> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let file = openat(dir, path.as_ref(), flags, Mode::empty())?;
    let mut bytes = vec![0; MAX_FILE_BYTES];
    let mut length = 0;
    // With the whole buffer: some of these files have no more than their first read.
    loop {
        match rustix::io::read(&file, bytes.get_mut(length..).unwrap_or_default()) {
            Ok(0) => break,
            Ok(more) => length += more,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    bytes.truncate(length);
    String::from_utf8(bytes).map_err(io::Error::other)
}

pub(crate) fn write(dir: &OwnedFd, path: impl AsRef<Path>, text: &str) -> io::Result<()> {
    let file = openat(
        dir,
        path.as_ref(),
        OFlags::WRONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    File::from(file).write_all(text.as_bytes())
}
