//! Opening and reading a file.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, fstat, openat};

#[derive(Debug)]
pub enum ReadError {
    /// A directory, FIFO or device: reading it fails, blocks or never ends.
    NotRegular {
        path: PathBuf,
    },
    Io {
        path: PathBuf,
        source: io::Error,
    },
}

/// Opens a regular file. Follows symbolic links, never blocks on a FIFO, and opens no device.
pub fn open_regular(path: &Path) -> Result<File, ReadError> {
    let failed = |source| ReadError::Io {
        path: path.to_owned(),
        source,
    };
    // Without access to the content at first: opening a device or a FIFO can have side effects.
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let found = openat(CWD, path, flags, Mode::empty()).map_err(|errno| failed(errno.into()))?;
    let stat = fstat(&found).map_err(|errno| failed(errno.into()))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(ReadError::NotRegular {
            path: path.to_owned(),
        });
    }
    reopen(found.as_fd()).map_err(failed)
}

/// Opens for reading what a descriptor without access to the content stands for.
pub(super) fn reopen(found: BorrowedFd<'_>) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", found.as_raw_fd());
    Ok(File::from(openat(CWD, path, flags, Mode::empty())?))
}

/// Reads the next bytes of a file, at most `max`; none at EOF.
pub fn read_piece(file: &File, max: usize) -> io::Result<Vec<u8>> {
    let mut piece = Vec::with_capacity(max);
    loop {
        match rustix::io::read(file, rustix::buffer::spare_capacity(&mut piece)) {
            Ok(_) => return Ok(piece),
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
    }
}
