//! A netlink socket and its dumps. Only reads: no request here changes anything.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, sendto, socket_with,
};

use super::message::{HEADER_BYTES, Message, messages, number};

const NLM_F_REQUEST: u16 = 0x1;
const NLM_F_DUMP: u16 = 0x300;
const NLM_F_DUMP_INTR: u16 = 0x10;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;

/// The kernel sends datagrams of at most this size unless the receiver offers more.
const BUFFER_BYTES: usize = 64 << 10;
/// A dump beyond this is refused. It holds hundreds of thousands of routes; parsed they take ten
/// times as much memory.
const MAX_DUMP_BYTES: usize = 16 << 20;
/// A dump that a change interrupts is repeated this many times, then taken as it is.
const MAX_RETRIES: usize = 4;
/// The kernel answers at once; this only ends a wait that should not exist.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        // `None` is NETLINK_ROUTE.
        let socket = socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            None,
        )?;
        bind(&socket, &SocketAddrNetlink::new(0, 0))?;
        set_socket_timeout(&socket, Timeout::Recv, Some(RECEIVE_TIMEOUT))?;
        Ok(Self {
            socket,
            sequence: 0,
        })
    }

    /// Requests all objects of one kind and returns the bodies of the kernel's messages.
    pub(super) fn dump(&mut self, kind: u16, body: &[u8]) -> io::Result<Vec<Vec<u8>>> {
        for _ in 0..MAX_RETRIES {
            let (bodies, interrupted) = self.dump_once(kind, body)?;
            if !interrupted {
                return Ok(bodies);
            }
        }
        Ok(self.dump_once(kind, body)?.0)
    }

    fn dump_once(&mut self, kind: u16, body: &[u8]) -> io::Result<(Vec<Vec<u8>>, bool)> {
        self.sequence = self.sequence.wrapping_add(1);
        let kernel = SocketAddrNetlink::new(0, 0);
        let request = self.request(kind, body);
        sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
        let mut buffer = vec![0; BUFFER_BYTES];
        let mut bodies = Vec::new();
        let mut size = 0;
        let mut interrupted = false;
        loop {
            let length = match recv(&self.socket, &mut buffer[..], RecvFlags::TRUNC) {
                Ok((_, length)) => length,
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let datagram = buffer
                .get(..length)
                .ok_or_else(|| io::Error::other("the kernel's answer does not fit"))?;
            for message in messages(datagram).filter(|one| one.sequence == self.sequence) {
                interrupted |= message.flags & NLM_F_DUMP_INTR != 0;
                match message.kind {
                    NLMSG_DONE => return Ok((bodies, interrupted)),
                    NLMSG_ERROR => return Err(error_of(&message)),
                    _ => {
                        size += message.body.len();
                        if size > MAX_DUMP_BYTES {
                            let limit = MAX_DUMP_BYTES >> 20;
                            let message = format!("the kernel sends more than {limit} MiB");
                            return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
                        }
                        bodies.push(message.body.to_vec());
                    }
                }
            }
        }
    }

    fn request(&self, kind: u16, body: &[u8]) -> Vec<u8> {
        let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(u32::MAX);
        let mut request = Vec::with_capacity(HEADER_BYTES + body.len());
        request.extend(length.to_ne_bytes());
        request.extend(kind.to_ne_bytes());
        request.extend((NLM_F_REQUEST | NLM_F_DUMP).to_ne_bytes());
        request.extend(self.sequence.to_ne_bytes());
        request.extend(0_u32.to_ne_bytes());
        request.extend(body);
        request
    }
}

fn error_of(message: &Message<'_>) -> io::Error {
    match number(message.body, 0).map(i32::from_ne_bytes) {
        Some(code) if code < 0 => io::Error::from_raw_os_error(code.saturating_neg()),
        _ => io::Error::other("the kernel refused the request"),
    }
}
