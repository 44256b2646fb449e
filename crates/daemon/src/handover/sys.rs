//! The one system call of a handover that takes a bare number.

use std::io;
use std::os::fd::{BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};

/// Makes `number` refer to the open file of `fd`, inherited by the program that is executed next.
/// Closes what `number` was before.
#[expect(
    unsafe_code,
    reason = "the protocol of socket activation names file descriptors by number"
)]
pub fn duplicate_to(fd: BorrowedFd<'_>, number: RawFd) -> io::Result<()> {
    // SAFETY: The process executes another program next. Until then nothing uses `number` that
    // could be harmed: it is a placeholder that this module holds for ever, or a listening socket
    // whose accept loop has ended. It is never closed by this value.
    let mut target = unsafe { OwnedFd::from_raw_fd(number) };
    let duplicated = rustix::io::dup2(fd, &mut target);
    let _ = target.into_raw_fd();
    Ok(duplicated?)
}
