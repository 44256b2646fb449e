//! Packet capture: packet sockets with filter programs, and the file formats pcap and pcapng.
//!
//! [`Capture`] reads packets of one interface on the node; [`filter::compile`] and [`Decoder`] serve
//! the client that asked for them. This crate knows no gRPC. It never buffers more than its bounds:
//! packets that nobody reads are dropped by the kernel and counted.

mod capture;
mod decoder;
pub mod filter;
mod link;
mod pcap;
mod pcapng;
mod program;
mod sys;

pub use capture::{Capture, CaptureError, CaptureOptions, Format, MAX_SNAP_LEN};
pub use decoder::{Corrupt, Decoder, Item};
pub use link::LinkType;
pub use pcapng::Encoder as PcapngEncoder;
pub use program::{BadProgram, Instruction, MAX_INSTRUCTIONS, parse_program};

/// A captured packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet<'a> {
    /// Nanoseconds since 1970 UTC.
    pub time: u64,
    /// Its length on the wire, of which `data` may be the beginning only.
    pub length: u32,
    pub data: &'a [u8],
}

/// Counters of a capture since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Packets that passed the filter, dropped ones included.
    pub received: u64,
    /// Packets that the kernel dropped because the buffer was full.
    pub dropped: u64,
}
