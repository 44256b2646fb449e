//! Small files of the kernel, read into one buffer, and their numbers.

use std::os::fd::BorrowedFd;
use std::str::FromStr;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::{Errno, read};

/// Reads at most `max` bytes of a file below `dir` into `buffer`.
pub(crate) fn read_small(
    dir: BorrowedFd<'_>,
    path: &str,
    max: usize,
    buffer: &mut Vec<u8>,
) -> Result<(), Errno> {
    let file = openat(dir, path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
    buffer.clear();
    loop {
        if buffer.len() >= max {
            buffer.truncate(max);
            return Ok(());
        }
        buffer.reserve(1024);
        match read(&file, rustix::buffer::spare_capacity(buffer)) {
            Ok(0) => return Ok(()),
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Parses a decimal number.
pub(crate) fn number<T: FromStr>(text: &[u8]) -> Option<T> {
    let text = std::str::from_utf8(text).ok()?;
    text.parse().ok()
}
