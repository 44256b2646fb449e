//! The file format pcap, with microseconds, which every reader knows.

use crate::{LinkType, Packet};

/// Length of the file header.
pub(crate) const HEADER_BYTES: usize = 24;
/// Length of the header of each packet.
pub(crate) const RECORD_BYTES: usize = 16;
pub(crate) const MAGIC_MICROSECONDS: u32 = 0xa1b2_c3d4;
pub(crate) const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;

pub(crate) fn header(out: &mut Vec<u8>, link: LinkType, snap_len: u32) {
    out.extend(MAGIC_MICROSECONDS.to_le_bytes());
    out.extend(2_u16.to_le_bytes());
    out.extend(4_u16.to_le_bytes());
    // Time zone and accuracy, unused.
    out.extend([0; 8]);
    out.extend(snap_len.to_le_bytes());
    out.extend(u32::from(link.number()).to_le_bytes());
}

pub(crate) fn packet(out: &mut Vec<u8>, packet: Packet<'_>) {
    let seconds = packet.time / 1_000_000_000;
    let microseconds = packet.time % 1_000_000_000 / 1000;
    // The format's seconds end in 2106.
    out.extend(u32::try_from(seconds).unwrap_or(u32::MAX).to_le_bytes());
    out.extend(u32::try_from(microseconds).unwrap_or(0).to_le_bytes());
    let captured = u32::try_from(packet.data.len()).unwrap_or(u32::MAX);
    out.extend(captured.to_le_bytes());
    out.extend(packet.length.to_le_bytes());
    out.extend_from_slice(packet.data);
}
