//! Opening and reading a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

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
    let not_regular = || ReadError::NotRegular {
        path: path.to_owned(),
    };
    // stat first: opening a device can have side effects.
    if !std::fs::metadata(path).map_err(failed)?.is_file() {
        return Err(not_regular());
    }
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)
        .map_err(failed)?;
    if file.metadata().map_err(failed)?.is_file() {
        Ok(file)
    } else {
        Err(not_regular())
    }
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
