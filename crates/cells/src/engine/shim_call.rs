//! Requests of the daemon to a cell's shim.

use std::io;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use super::paths::Paths;
use super::stop::KILL_TIMEOUT;
use crate::frame;
use crate::name::CellName;
use crate::shim::protocol::{Reply, Request};

/// Sends a request with file descriptors, and waits for the reply.
pub(super) fn call(
    paths: &Paths,
    cell: &CellName,
    request: &Request,
    fds: &[BorrowedFd<'_>],
    timeout: Duration,
) -> io::Result<Reply> {
    let stream = paths.connect(cell)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    frame::send(&stream, request, fds)?;
    let (body, _) = frame::receive_bytes(&stream)?.ok_or(io::ErrorKind::ConnectionReset)?;
    Reply::decode(&body)
}

/// Waits until the shim has reaped all processes it started, which have been killed.
pub(super) fn reap(paths: &Paths, cell: &CellName) -> io::Result<()> {
    match call(paths, cell, &Request::reap(), &[], KILL_TIMEOUT)? {
        Reply::Reaped => Ok(()),
        Reply::Failed { what } => Err(io::Error::other(what)),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}
