//! The directory of one log: names, generations, the lock.
//!
//! Everything is opened relative to the directory and without following symbolic links, so that
//! no name leads out of it, and a directory that replaces it is not mistaken for it.

use std::ffi::CStr;
use std::fs::{DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

use super::error::LogError;
use crate::lock::FileLock;

pub(super) const MAX_NAME: usize = 160;

const OWNER_ONLY: Mode = Mode::RUSR.union(Mode::WUSR);

pub(super) fn check_name(name: &str) -> Result<(), LogError> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric();
    let valid = name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(plain)
        && name
            .bytes()
            .all(|byte| plain(byte) || matches!(byte, b'.' | b'_' | b'-'));
    if valid {
        Ok(())
    } else {
        Err(LogError::InvalidName {
            name: name.to_owned(),
        })
    }
}

/// An open log directory.
#[derive(Debug)]
pub(super) struct LogDirectory {
    name: String,
    fd: OwnedFd,
}

impl LogDirectory {
    pub(super) fn open(root: &Path, name: &str) -> Result<Self, LogError> {
        check_name(name)?;
        let path = root.join(name);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match rustix::fs::open(&path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self {
                name: name.to_owned(),
                fd,
            }),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Err(LogError::NotFound {
                log: name.to_owned(),
            }),
            Err(errno) => Err(LogError::Open {
                path,
                source: errno.into(),
            }),
        }
    }

    pub(super) fn open_or_create(root: &Path, name: &str) -> Result<Self, LogError> {
        check_name(name)?;
        let path = root.join(name);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&path)
            .map_err(|source| LogError::Open { path, source })?;
        Self::open(root, name)
    }

    /// True if the directory has been removed since it was opened.
    pub(super) fn is_deleted(&self) -> bool {
        rustix::fs::fstat(&self.fd).is_ok_and(|found| found.st_nlink == 0)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Locks the log for its one writer.
    pub(super) fn lock(&self) -> Result<FileLock, LogError> {
        self.open_at(".", OFlags::RDONLY | OFlags::DIRECTORY)
            .map_err(Into::into)
            .and_then(FileLock::take)
            .map_err(|source| LogError::Write {
                log: self.name.clone(),
                source,
            })?
            .ok_or_else(|| LogError::Locked {
                log: self.name.clone(),
            })
    }

    /// Returns all generations, oldest first.
    pub(super) fn generations(&self) -> io::Result<Vec<u64>> {
        let mut found = Vec::new();
        for entry in Dir::read_from(&self.fd)? {
            let entry = entry?;
            // Some file systems do not report the type of an entry.
            let may_be_file =
                matches!(entry.file_type(), FileType::RegularFile | FileType::Unknown);
            found.extend(parse_file_name(entry.file_name()).filter(|_| may_be_file));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Opens a generation for reading; `None` if there is no such file.
    pub(super) fn open_generation(&self, generation: u64) -> io::Result<Option<File>> {
        match self.open_at(&file_name(generation), OFlags::RDONLY) {
            Ok(file) => Ok(Some(file)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(errno.into()),
        }
    }

    pub(super) fn append_to(&self, generation: u64) -> io::Result<File> {
        Ok(self.open_at(&file_name(generation), OFlags::RDWR | OFlags::APPEND)?)
    }

    pub(super) fn create(&self, generation: u64) -> io::Result<File> {
        let flags = OFlags::RDWR | OFlags::APPEND | OFlags::CREATE | OFlags::EXCL;
        Ok(self.open_at(&file_name(generation), flags)?)
    }

    pub(super) fn remove(&self, generation: u64) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(
            &self.fd,
            file_name(generation),
            AtFlags::empty(),
        )?)
    }

    /// Points `current` at the generation, atomically.
    pub(super) fn link_current(&self, generation: u64) -> io::Result<()> {
        const NEW: &str = "current.new";
        let target = file_name(generation);
        match rustix::fs::symlinkat(&target, &self.fd, NEW) {
            Err(Errno::EXIST) => {
                // Left by a writer killed between the two steps.
                rustix::fs::unlinkat(&self.fd, NEW, AtFlags::empty())?;
                rustix::fs::symlinkat(&target, &self.fd, NEW)?;
            }
            made => made?,
        }
        Ok(rustix::fs::renameat(&self.fd, NEW, &self.fd, "current")?)
    }

    fn open_at(&self, name: &str, flags: OFlags) -> Result<File, Errno> {
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, OWNER_ONLY).map(File::from)
    }
}

fn file_name(generation: u64) -> String {
    format!("{generation:010}.log")
}

fn parse_file_name(name: &CStr) -> Option<u64> {
    let name = name.to_str().ok()?;
    let generation = name.strip_suffix(".log")?.parse().ok()?;
    // Only names as written here: no sign, no other width.
    (generation < u64::MAX && file_name(generation) == name).then_some(generation)
}
