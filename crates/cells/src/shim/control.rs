//! The door of a shim, for root outside the cell alone.

use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::protocol::Reply;
use crate::frame;

/// The daemon has its request ready when it connects.
const LONGEST_REQUEST: Duration = Duration::from_secs(5);

/// The next caller, if it may call. The socket stands where only root outside can reach it; should
/// anybody inside get hold of it all the same, it is recognised by having a number in here.
pub(super) fn accept(
    listener: &UnixListener,
    outside_has_no_pid: bool,
) -> io::Result<Option<UnixStream>> {
    let (stream, _) = listener.accept()?;
    let caller = getsockopt(&stream, PeerCredentials)?;
    if caller.uid() != 0 || (outside_has_no_pid && caller.pid() != 0) {
        return Ok(None);
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(LONGEST_REQUEST))?;
    stream.set_write_timeout(Some(LONGEST_REQUEST))?;
    Ok(Some(stream))
}

/// Tells the first caller why there is no cell.
pub(super) fn refuse(listener: &UnixListener, what: &str, error: &io::Error) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    let reply = Reply::NotIsolated {
        what: what.to_owned(),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    };
    frame::send(&stream, &reply, &[])
}
