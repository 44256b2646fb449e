//! A lock on a file or directory that one process holds at a time.
//!
//! The kernel releases it when the process dies.

use std::fs::{File, TryLockError};
use std::io;

#[derive(Debug)]
pub(crate) struct FileLock(File);

impl FileLock {
    /// Takes the lock; `None` if another process holds it.
    pub(crate) fn take(file: File) -> io::Result<Option<Self>> {
        match file.try_lock() {
            Ok(()) => Ok(Some(Self(file))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing alone is not enough: a forked child has a copy of the file descriptor until it
        // execs, and the lock would live as long as that.
        let _ = self.0.unlock();
    }
}
