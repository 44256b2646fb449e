//! The control socket of a shim, for root outside the cell alone.

use std::fs;
use std::io;
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

use super::protocol::{Reply, Request};
use crate::frame;

/// The daemon has its request ready when it connects.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// Accepts the next connection; `None` if its peer is not permitted.
///
/// The path of the socket is reachable for root outside the cell alone. A process inside that got
/// hold of the socket all the same is refused if the cell has a PID namespace of its own.
pub(super) fn accept(listener: &UnixListener, own_pids: bool) -> io::Result<Option<UnixStream>> {
    let (stream, _) = listener.accept()?;
    let peer = getsockopt(&stream, PeerCredentials)?;
    if peer.uid() != 0 || (own_pids && !is_outside(peer.pid())?) {
        return Ok(None);
    }
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
    Ok(Some(stream))
}

/// Returns whether a process is in the PID namespace of this shim, or in one around it.
fn is_outside(pid: i32) -> io::Result<bool> {
    if pid == 0 {
        return Ok(true);
    }
    // Below the host's `/proc`, the working directory of a shim.
    let namespace = |pid: &str| fs::read_link(format!("{pid}/ns/pid"));
    Ok(namespace(&pid.to_string())? == namespace("self")?)
}

/// Answers the first connection with the reason why the cell could not be isolated.
pub(super) fn refuse(
    listener: &UnixListener,
    operation: &str,
    error: &io::Error,
) -> io::Result<()> {
    let (stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT))?;
    // Read for its version; the reply does not depend on the rest.
    let body = frame::receive_bytes(&stream)?.map(|(body, _)| body);
    let Some(Ok(request)) = body.map(|body| Request::decode(&body)) else {
        return Ok(());
    };
    let reply = Reply::NotIsolated {
        what: operation.to_owned(),
        errno: error.raw_os_error().unwrap_or(libc::EIO),
    };
    reply.send(&stream, request.version())
}
