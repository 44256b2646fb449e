//! A capture on one interface: a packet socket, read in batches and encoded as a file.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{SystemTime, UNIX_EPOCH};

use tokio::io::unix::AsyncFd;

use crate::pcapng::Encoder;
use crate::sys::{self, Batch, Received};
use crate::{Instruction, LinkType, MAX_INSTRUCTIONS, Packet, Statistics, pcap};

/// The most bytes that can be kept of a packet.
pub const MAX_SNAP_LEN: u32 = 262_144;
/// Bytes kept of a packet unless the caller asks for another number.
const DEFAULT_SNAP_LEN: u32 = 65_536;
/// Packets that the kernel buffers for a slow reader, in bytes; the kernel doubles it for its own
/// bookkeeping.
const BUFFER_BYTES: i32 = 2 << 20;
/// Buffers for one read, all packets together.
const BATCH_BYTES: usize = 512 << 10;
const MAX_BATCH: usize = 64;
/// Reads are joined into chunks of about this size while packets are waiting.
const CHUNK_BYTES: usize = 256 << 10;
/// The kernel's limit without the NUL byte at the end.
const MAX_NAME_BYTES: usize = 15;
/// The instruction that accepts the first `k` bytes of every packet.
const RETURN: u16 = 0x06;

/// The form of the captured data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// For existing clients: no counters, times in microseconds.
    Pcap,
    Pcapng,
}

/// The packets to capture.
#[derive(Debug, Clone)]
pub struct CaptureOptions {
    pub interface: String,
    pub promiscuous: bool,
    /// Bytes kept of each packet; 0 is the default.
    pub snap_len: u32,
    /// Empty: every packet.
    pub program: Vec<Instruction>,
    pub format: Format,
}

#[derive(Debug, thiserror::Error)]
pub enum CaptureError {
    #[error("no interface is given; mainstay netstat and ip link show their names")]
    NoInterface,
    #[error(
        "{0:?} is not the name of an interface: it has 1 to {MAX_NAME_BYTES} characters, no / and no space"
    )]
    BadInterface(String),
    #[error("interface {0:?} not found")]
    NotFound(String),
    #[error("interface {0:?} is down")]
    Down(String),
    #[error(
        "unsupported link type {hardware} of interface {interface:?}; Ethernet, loopback and IP tunnels are supported"
    )]
    LinkType { interface: String, hardware: u16 },
    #[error("{0} bytes of each packet are too many; the limit is {MAX_SNAP_LEN}")]
    SnapLen(u32),
    #[error("the filter program has {0} instructions; the limit is {MAX_INSTRUCTIONS}")]
    ProgramTooLong(usize),
    #[error(
        "the kernel refuses the filter program; compile it with tcpdump -dd for the link type of the interface"
    )]
    BadProgram(#[source] io::Error),
    #[error("packets can only be captured by a node that has CAP_NET_RAW")]
    Denied(#[source] io::Error),
    #[error("this kernel has no packet sockets")]
    Unsupported(#[source] io::Error),
    #[error("interface {interface:?} went down or was removed; the capture has ended")]
    WentDown { interface: String },
    #[error("cannot capture on interface {interface:?}")]
    Io {
        interface: String,
        source: io::Error,
    },
}

/// A running capture; dropping it closes the socket, which ends promiscuous mode too.
#[derive(Debug)]
pub struct Capture {
    socket: AsyncFd<OwnedFd>,
    interface: String,
    link: LinkType,
    snap_len: u32,
    batch: Batch,
    output: Output,
    total: Statistics,
    /// The number of dropped packets that the output says.
    reported_drops: u64,
    started: bool,
}

#[derive(Debug)]
enum Output {
    Pcap(Vec<u8>),
    Pcapng(Encoder),
}

impl Capture {
    /// Opens the socket; packets are captured from now on. Must run inside the async runtime.
    pub fn open(options: CaptureOptions) -> Result<Self, CaptureError> {
        let CaptureOptions {
            interface: name,
            promiscuous,
            snap_len,
            mut program,
            format,
        } = options;
        check_name(&name)?;
        let snap_len = match snap_len {
            0 => DEFAULT_SNAP_LEN,
            1..=MAX_SNAP_LEN => snap_len,
            _ => return Err(CaptureError::SnapLen(snap_len)),
        };
        if program.len() > MAX_INSTRUCTIONS {
            return Err(CaptureError::ProgramTooLong(program.len()));
        }
        if program.is_empty() {
            // The kernel then buffers only what is kept.
            program.push(Instruction {
                op: RETURN,
                jt: 0,
                jf: 0,
                k: snap_len,
            });
        }
        let socket = sys::socket().map_err(cannot_open)?;
        let failed = |source: io::Error| match source.raw_os_error() {
            Some(libc::ENODEV) => CaptureError::NotFound(name.clone()),
            Some(libc::ENETDOWN) => CaptureError::Down(name.clone()),
            _ => CaptureError::Io {
                interface: name.clone(),
                source,
            },
        };
        let found = sys::interface(socket.as_fd(), &name).map_err(failed)?;
        let Some(link) = LinkType::of_hardware(found.hardware) else {
            return Err(CaptureError::LinkType {
                interface: name,
                hardware: found.hardware,
            });
        };
        sys::set_buffer(socket.as_fd(), BUFFER_BYTES).map_err(failed)?;
        sys::set_ancillary(socket.as_fd()).map_err(failed)?;
        if found.is_loopback {
            sys::ignore_outgoing(socket.as_fd()).map_err(failed)?;
        }
        sys::attach(socket.as_fd(), &program).map_err(CaptureError::BadProgram)?;
        // Bound last: no packet arrives that the filter has not seen.
        sys::bind(socket.as_fd(), found).map_err(failed)?;
        if promiscuous {
            sys::set_promiscuous(socket.as_fd(), found).map_err(failed)?;
        }
        let socket = sys::watch(socket).map_err(failed)?;
        let each = snap_len as usize;
        Ok(Self {
            socket,
            interface: name,
            link,
            snap_len,
            batch: Batch::new((BATCH_BYTES / each).clamp(1, MAX_BATCH), each),
            output: match format {
                Format::Pcap => Output::Pcap(Vec::new()),
                Format::Pcapng => Output::Pcapng(Encoder::default()),
            },
            total: Statistics::default(),
            reported_drops: 0,
            started: false,
        })
    }

    /// Returns the next part of the file: its header at once, then packets as they arrive.
    pub async fn next_chunk(&mut self) -> Result<Vec<u8>, CaptureError> {
        if !self.started {
            self.started = true;
            self.output.start(&self.interface, self.link, self.snap_len);
            return Ok(self.output.take());
        }
        loop {
            let received = {
                let mut ready = self
                    .socket
                    .ready(sys::WATCHED)
                    .await
                    .map_err(|source| self.failed(source))?;
                match self.batch.receive(self.socket.as_fd()) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                        ready.clear_ready();
                        Ok(false)
                    }
                    received => received.map(|()| true),
                }
            };
            let received = received.map_err(|source| self.failed(source))?;
            if !received {
                if self.output.len() > 0 {
                    self.report_drops();
                    return Ok(self.output.take());
                }
                continue;
            }
            for (received, data) in self.batch.messages() {
                self.output.message(self.link, received, data);
            }
            if self.output.len() >= CHUNK_BYTES {
                self.report_drops();
                return Ok(self.output.take());
            }
        }
    }

    /// Returns the counters since the start.
    pub fn statistics(&mut self) -> Statistics {
        // They are informational: without them the capture continues.
        if let Ok(more) = sys::statistics(self.socket.as_fd()) {
            self.total.received += more.received;
            self.total.dropped += more.dropped;
        }
        self.total
    }

    fn report_drops(&mut self) {
        let total = self.statistics();
        if total.dropped > self.reported_drops {
            self.reported_drops = total.dropped;
            self.output.statistics(total);
        }
    }

    fn failed(&self, source: io::Error) -> CaptureError {
        let interface = self.interface.clone();
        match source.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENODEV | libc::ENXIO) => {
                CaptureError::WentDown { interface }
            }
            _ => CaptureError::Io { interface, source },
        }
    }
}

impl Output {
    fn start(&mut self, interface: &str, link: LinkType, snap_len: u32) {
        match self {
            Self::Pcap(out) => pcap::header(out, link, snap_len),
            Self::Pcapng(encoder) => encoder.start(interface, link, snap_len),
        }
    }

    fn message(&mut self, link: LinkType, received: Received, data: &[u8]) {
        let time = if received.time == 0 {
            now()
        } else {
            received.time
        };
        let length = u32::try_from(received.length).unwrap_or(u32::MAX);
        match received.vlan {
            Some(tag) if link == LinkType::Ethernet && data.len() >= ADDRESSES_BYTES => {
                let data = with_tag(data, tag);
                let length = length.saturating_add(4);
                self.packet(Packet {
                    time,
                    length,
                    data: &data,
                });
            }
            _ => self.packet(Packet { time, length, data }),
        }
    }

    fn packet(&mut self, packet: Packet<'_>) {
        match self {
            Self::Pcap(out) => pcap::packet(out, packet),
            Self::Pcapng(encoder) => encoder.packet(packet),
        }
    }

    fn statistics(&mut self, total: Statistics) {
        match self {
            Self::Pcap(_) => {}
            Self::Pcapng(encoder) => encoder.statistics(now(), total),
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Pcap(out) => out.len(),
            Self::Pcapng(encoder) => encoder.len(),
        }
    }

    fn take(&mut self) -> Vec<u8> {
        match self {
            Self::Pcap(out) => std::mem::take(out),
            Self::Pcapng(encoder) => encoder.take(),
        }
    }
}

/// Bytes of an Ethernet header before the place of a VLAN tag.
const ADDRESSES_BYTES: usize = 12;

/// Puts a VLAN tag back where it was on the wire.
fn with_tag(data: &[u8], (protocol, control): (u16, u16)) -> Vec<u8> {
    let (addresses, rest) = data.split_at(ADDRESSES_BYTES.min(data.len()));
    let mut whole = Vec::with_capacity(data.len() + 4);
    whole.extend_from_slice(addresses);
    whole.extend(protocol.to_be_bytes());
    whole.extend(control.to_be_bytes());
    whole.extend_from_slice(rest);
    whole
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    u64::try_from(now.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX)
}

fn check_name(name: &str) -> Result<(), CaptureError> {
    if name.is_empty() {
        return Err(CaptureError::NoInterface);
    }
    let bad = |c: char| c == '/' || c == '\0' || c.is_whitespace() || c.is_control();
    if name.len() > MAX_NAME_BYTES || name.contains(bad) {
        return Err(CaptureError::BadInterface(name.chars().take(80).collect()));
    }
    Ok(())
}

fn cannot_open(error: io::Error) -> CaptureError {
    match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => CaptureError::Denied(error),
        Some(libc::EAFNOSUPPORT | libc::ESOCKTNOSUPPORT) => CaptureError::Unsupported(error),
        _ => CaptureError::Io {
            interface: String::new(),
            source: error,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_after_the_addresses() {
        let packet: Vec<u8> = (0..20).collect();
        let whole = with_tag(&packet, (0x8100, 5));
        assert_eq!(&whole[..12], &packet[..12]);
        assert_eq!(&whole[12..16], &[0x81, 0, 0, 5]);
        assert_eq!(&whole[16..], &packet[12..]);
    }

    #[test]
    fn names_that_no_interface_has_are_refused() {
        for name in ["", "a b", "a/b", "a\0b", "sixteen-letters-"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        check_name("fifteen-letters").unwrap();
    }
}
