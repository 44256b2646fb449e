//! Packet sockets: the system calls without a safe wrapper in our dependencies. All unsafe code of
//! this crate is here.
#![allow(unsafe_code)]

use std::ffi::c_int;
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::{Instruction, Statistics};

/// From linux/if_packet.h, since Linux 4.20.
const PACKET_IGNORE_OUTGOING: c_int = 23;

/// An interface as the kernel describes it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Interface {
    index: c_int,
    /// Its `ARPHRD_*` number.
    pub(crate) hardware: u16,
    pub(crate) is_loopback: bool,
}

/// A message read from the socket.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Received {
    /// Its length on the wire; the buffer may hold the beginning only.
    pub(crate) length: usize,
    /// Its length behind the filter.
    kept: usize,
    /// Nanoseconds since 1970 UTC, 0 if unknown.
    pub(crate) time: u64,
    /// The VLAN tag that the kernel has taken out of the packet: protocol and control information.
    pub(crate) vlan: Option<(u16, u16)>,
}

/// Creates a socket that receives nothing until it is bound.
pub(crate) fn socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: takes integers only; the result is checked.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: just opened, and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Packets, and the error that its interface has gone down.
pub(crate) const WATCHED: Interest = Interest::READABLE.add(Interest::ERROR);

/// Registers the socket with the reactor.
pub(crate) fn watch(socket: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` owns one file descriptor from now to its drop.
    Ok(unsafe { AsyncFd::register_with_interest(socket, WATCHED) }?)
}

/// Looks up an interface in the network namespace of the socket. `name` has no NUL byte and fits.
pub(crate) fn interface(socket: BorrowedFd<'_>, name: &str) -> io::Result<Interface> {
    // SAFETY: a struct of integers and arrays of them, for which all zeros is valid.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    // The last byte stays NUL.
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().take(room).zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let mut ask = |what: libc::Ioctl| {
        // SAFETY: these requests read the name of the struct and write its union, and the struct
        // outlives the call.
        check(unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) })?;
        Ok::<_, io::Error>(request.ifr_ifru)
    };
    // SAFETY: SIOCGIFINDEX has filled this variant of the union.
    let index = unsafe { ask(libc::SIOCGIFINDEX)?.ifru_ifindex };
    // SAFETY: SIOCGIFHWADDR has filled this variant of the union.
    let hardware = unsafe { ask(libc::SIOCGIFHWADDR)?.ifru_hwaddr.sa_family };
    // SAFETY: SIOCGIFFLAGS has filled this variant of the union.
    let flags = unsafe { ask(libc::SIOCGIFFLAGS)?.ifru_flags };
    Ok(Interface {
        index,
        hardware,
        is_loopback: c_int::from(flags) & libc::IFF_LOOPBACK != 0,
    })
}

/// Attaches a filter program; the kernel checks it.
pub(crate) fn attach(socket: BorrowedFd<'_>, program: &[Instruction]) -> io::Result<()> {
    let mut filter: Vec<libc::sock_filter> = program
        .iter()
        .map(|instruction| libc::sock_filter {
            code: instruction.op,
            jt: instruction.jt,
            jf: instruction.jf,
            k: instruction.k,
        })
        .collect();
    let len =
        u16::try_from(filter.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    let program = libc::sock_fprog {
        len,
        filter: filter.as_mut_ptr(),
    };
    // The kernel copies the program that the struct points to, which outlives the call.
    set(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}

/// Sets the size of the receive buffer, beyond the limit of the system if allowed.
pub(crate) fn set_buffer(socket: BorrowedFd<'_>, bytes: c_int) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, &bytes)
        .or_else(|_| set(socket, libc::SOL_SOCKET, libc::SO_RCVBUF, &bytes))
}

/// Asks for the time of every packet and for VLAN tags.
pub(crate) fn set_ancillary(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: c_int = 1;
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, &on)?;
    set(socket, libc::SOL_PACKET, libc::PACKET_AUXDATA, &on)
}

/// On loopback every packet passes twice: as sent and as received.
pub(crate) fn ignore_outgoing(socket: BorrowedFd<'_>) -> io::Result<()> {
    let on: c_int = 1;
    set(socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, &on)
}

/// Makes the interface receive packets for other hosts, for as long as the socket is open.
pub(crate) fn set_promiscuous(socket: BorrowedFd<'_>, interface: Interface) -> io::Result<()> {
    let request = libc::packet_mreq {
        mr_ifindex: interface.index,
        mr_type: u16::try_from(libc::PACKET_MR_PROMISC).unwrap_or(0),
        mr_alen: 0,
        mr_address: [0; 8],
    };
    set(
        socket,
        libc::SOL_PACKET,
        libc::PACKET_ADD_MEMBERSHIP,
        &request,
    )
}

/// Starts to receive the packets of the interface. Fails with ENETDOWN if it is down.
pub(crate) fn bind(socket: BorrowedFd<'_>, interface: Interface) -> io::Result<()> {
    let address = libc::sockaddr_ll {
        sll_family: u16::try_from(libc::AF_PACKET).unwrap_or(0),
        sll_protocol: u16::try_from(libc::ETH_P_ALL).unwrap_or(0).to_be(),
        sll_ifindex: interface.index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    };
    let length = length_of::<libc::sockaddr_ll>();
    // SAFETY: the address is a `sockaddr_ll` of the length given, and outlives the call.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    // The kernel reports an interface that is down as an error of the socket.
    let pending: c_int = get(socket, libc::SOL_SOCKET, libc::SO_ERROR)?;
    match pending {
        0 => Ok(()),
        error => Err(io::Error::from_raw_os_error(error)),
    }
}

/// Returns the counters since the last call.
pub(crate) fn statistics(socket: BorrowedFd<'_>) -> io::Result<Statistics> {
    let counted: libc::tpacket_stats = get(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
    Ok(Statistics {
        received: counted.tp_packets.into(),
        dropped: counted.tp_drops.into(),
    })
}

/// Room for the time and the VLAN tag of a message, aligned for their headers.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 128]);

/// Buffers for several messages, read with one system call.
#[derive(Debug)]
pub(crate) struct Batch {
    data: Vec<u8>,
    /// Bytes of `data` for each message.
    each: usize,
    control: Vec<Control>,
    received: Vec<Received>,
}

impl Batch {
    pub(crate) fn new(messages: usize, each: usize) -> Self {
        Self {
            data: vec![0; messages * each],
            each,
            control: vec![Control([0; 128]); messages],
            received: Vec::with_capacity(messages),
        }
    }

    /// Reads the messages that are there; fails with EAGAIN if there are none.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<()> {
        self.received.clear();
        let mut parts: Vec<libc::iovec> = self
            .data
            .chunks_exact_mut(self.each)
            .map(|chunk| libc::iovec {
                iov_base: chunk.as_mut_ptr().cast(),
                iov_len: chunk.len(),
            })
            .collect();
        let mut headers: Vec<libc::mmsghdr> = parts
            .iter_mut()
            .zip(&mut self.control)
            .map(|(part, control)| {
                // SAFETY: a struct of integers and pointers, for which all zeros is valid.
                let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
                header.msg_hdr.msg_iov = ptr::from_mut(part);
                header.msg_hdr.msg_iovlen = 1;
                header.msg_hdr.msg_control = control.0.as_mut_ptr().cast();
                header.msg_hdr.msg_controllen = control.0.len() as _;
                header
            })
            .collect();
        let count = libc::c_uint::try_from(headers.len()).unwrap_or(0);
        // MSG_TRUNC returns the length on the wire of a packet that was cut.
        let flags = libc::MSG_DONTWAIT | libc::MSG_TRUNC;
        // SAFETY: each header points to one iovec over a chunk of `data` and to one control buffer,
        // with their lengths; all of them outlive the call.
        let read = check(unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                headers.as_mut_ptr(),
                count,
                flags as _,
                ptr::null_mut(),
            )
        })?;
        let read = usize::try_from(read).unwrap_or(0);
        self.received
            .extend(headers.iter().take(read).map(received));
        Ok(())
    }

    /// Iterates over the messages of the last read.
    pub(crate) fn messages(&self) -> impl Iterator<Item = (Received, &[u8])> {
        let chunks = self.data.chunks_exact(self.each);
        self.received.iter().zip(chunks).map(|(received, chunk)| {
            let kept = received.kept.min(self.each);
            (*received, chunk.get(..kept).unwrap_or_default())
        })
    }
}

/// Reads the header of a message that the kernel has filled.
fn received(header: &libc::mmsghdr) -> Received {
    let mut received = Received {
        length: header.msg_len as usize,
        kept: header.msg_len as usize,
        ..Received::default()
    };
    // SAFETY: the header's control buffer is alive and aligned, and its length is what the kernel
    // has written.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(&header.msg_hdr) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return pointers to whole headers within the buffer.
        let found = unsafe { *next };
        // SAFETY: the data of a control message follows its header within the buffer.
        let data = unsafe { libc::CMSG_DATA(next) };
        match (found.cmsg_level, found.cmsg_type) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
                // SAFETY: the kernel writes a timespec into this message, maybe unaligned.
                let time: libc::timespec = unsafe { ptr::read_unaligned(data.cast()) };
                let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
                let nanoseconds = u64::try_from(time.tv_nsec).unwrap_or(0);
                received.time = seconds.saturating_mul(1_000_000_000) + nanoseconds;
            }
            (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                // SAFETY: the kernel writes a tpacket_auxdata into this message, maybe unaligned.
                let aux: libc::tpacket_auxdata = unsafe { ptr::read_unaligned(data.cast()) };
                // A filter that cuts the packet changes the length of the message, not this one.
                received.length = received.length.max(aux.tp_len as usize);
                if aux.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                    let has_protocol = aux.tp_status & libc::TP_STATUS_VLAN_TPID_VALID != 0;
                    let protocol = if has_protocol {
                        aux.tp_vlan_tpid
                    } else {
                        0x8100
                    };
                    received.vlan = Some((protocol, aux.tp_vlan_tci));
                }
            }
            _ => {}
        }
        // SAFETY: both pointers are of this message, whose buffer is alive.
        next = unsafe { libc::CMSG_NXTHDR(&header.msg_hdr, next) };
    }
    received
}

fn set<T>(socket: BorrowedFd<'_>, level: c_int, name: c_int, value: &T) -> io::Result<()> {
    // SAFETY: the kernel reads at most the given length, which is that of the value.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            name,
            ptr::from_ref(value).cast(),
            length_of::<T>(),
        )
    };
    check(set).map(|_| ())
}

/// Reads a socket option into a type of integers, of which every value is valid.
fn get<T>(socket: BorrowedFd<'_>, level: c_int, name: c_int) -> io::Result<T> {
    // SAFETY: callers ask for integers and structs of integers, for which all zeros is valid.
    let mut value: T = unsafe { mem::zeroed() };
    let mut length = length_of::<T>();
    // SAFETY: the kernel writes at most `length` bytes, which is the size of the value.
    let got = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    check(got).map(|_| value)
}

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

fn check(result: c_int) -> io::Result<c_int> {
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(result)
}
