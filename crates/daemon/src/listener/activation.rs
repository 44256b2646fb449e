//! Sockets opened by the service manager before the daemon started (systemd socket activation), or
//! passed on by the daemon that this one replaces.
//!
//! A unix socket serves local users, or clients of Aurae if it is named `aurae`
//! (`FileDescriptorName=aurae`); a TCP socket named `pods` serves pod clients; any other TCP socket
//! serves TLS.

use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;

use rustix::net::AddressFamily;

/// The names under which a daemon passes its sockets on.
pub const TLS: &str = "tls";
pub const UNIX: &str = "unix";
pub const AURAE: &str = "aurae";
pub const PODS: &str = "pods";

#[derive(Debug, Default)]
pub struct Inherited {
    pub tls: Option<TcpListener>,
    pub unix: Option<UnixListener>,
    pub aurae: Option<UnixListener>,
    pub pods: Option<TcpListener>,
}

impl Inherited {
    pub fn take() -> io::Result<Self> {
        let mut inherited = Self::default();
        for (fd, name) in sd_notify::listen_fds_with_names()? {
            inherited.assign(own(fd), &name)?;
        }
        Ok(inherited)
    }

    fn assign(&mut self, socket: OwnedFd, name: &str) -> io::Result<()> {
        match (rustix::net::getsockname(&socket)?.address_family(), name) {
            (AddressFamily::UNIX, AURAE) => self.aurae = Some(UnixListener::from(socket)),
            (AddressFamily::UNIX, _) => self.unix = Some(UnixListener::from(socket)),
            (AddressFamily::INET | AddressFamily::INET6, PODS) => {
                let listener = TcpListener::from(socket);
                if !listener.local_addr()?.ip().is_loopback() {
                    return Err(io::Error::other("the socket named pods is not on loopback"));
                }
                self.pods = Some(listener);
            }
            (AddressFamily::INET | AddressFamily::INET6, _) => {
                self.tls = Some(TcpListener::from(socket));
            }
            _ => {
                return Err(io::Error::other(format!(
                    "socket \"{name}\" is neither TCP nor unix"
                )));
            }
        }
        Ok(())
    }
}

#[expect(
    unsafe_code,
    reason = "the service manager passes file descriptors as bare numbers"
)]
fn own(fd: std::os::fd::RawFd) -> OwnedFd {
    use std::os::fd::FromRawFd;
    // SAFETY: LISTEN_PID names this process, so by the protocol this file descriptor was opened for
    // us and nothing else in the process owns it; `take` runs once, before other files are opened.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
