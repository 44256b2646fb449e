//! The file format pcapng, with nanoseconds and the counters of the capture.

use crate::{LinkType, Packet, Statistics};

pub(crate) const SECTION: u32 = 0x0a0d_0d0a;
pub(crate) const INTERFACE: u32 = 1;
pub(crate) const STATISTICS: u32 = 5;
pub(crate) const PACKET: u32 = 6;
pub(crate) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
pub(crate) const OPTION_END: u16 = 0;
pub(crate) const OPTION_TIME_RESOLUTION: u16 = 9;
pub(crate) const OPTION_RECEIVED: u16 = 4;
pub(crate) const OPTION_DROPPED: u16 = 5;
const OPTION_NAME: u16 = 2;

/// Writes a file with one interface.
#[derive(Debug, Default)]
pub struct Encoder {
    out: Vec<u8>,
}

impl Encoder {
    /// Starts a file.
    pub fn start(&mut self, interface: &str, link: LinkType, snap_len: u32) {
        self.block(SECTION, |out| {
            out.extend(BYTE_ORDER.to_le_bytes());
            out.extend(1_u16.to_le_bytes());
            out.extend(0_u16.to_le_bytes());
            // The length of the section is not known.
            out.extend(u64::MAX.to_le_bytes());
        });
        self.block(INTERFACE, |out| {
            out.extend(link.number().to_le_bytes());
            out.extend(0_u16.to_le_bytes());
            out.extend(snap_len.to_le_bytes());
            option(out, OPTION_NAME, interface.as_bytes());
            // 10⁻⁹ seconds.
            option(out, OPTION_TIME_RESOLUTION, &[9]);
            option(out, OPTION_END, &[]);
        });
    }

    pub fn packet(&mut self, packet: Packet<'_>) {
        self.block(PACKET, |out| {
            out.extend(0_u32.to_le_bytes());
            time(out, packet.time);
            let captured = u32::try_from(packet.data.len()).unwrap_or(u32::MAX);
            out.extend(captured.to_le_bytes());
            out.extend(packet.length.to_le_bytes());
            out.extend_from_slice(packet.data);
            pad(out, packet.data.len());
        });
    }

    /// Writes the counters as of a time, in nanoseconds since 1970 UTC.
    pub fn statistics(&mut self, at: u64, statistics: Statistics) {
        self.block(STATISTICS, |out| {
            out.extend(0_u32.to_le_bytes());
            time(out, at);
            option(out, OPTION_RECEIVED, &statistics.received.to_le_bytes());
            option(out, OPTION_DROPPED, &statistics.dropped.to_le_bytes());
            option(out, OPTION_END, &[]);
        });
    }

    /// Takes what was written since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }

    pub(crate) fn len(&self) -> usize {
        self.out.len()
    }

    fn block(&mut self, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
        let start = self.out.len();
        self.out.extend(kind.to_le_bytes());
        self.out.extend([0; 4]);
        body(&mut self.out);
        let length = u32::try_from(self.out.len() - start + 4).unwrap_or(u32::MAX);
        self.out.extend(length.to_le_bytes());
        if let Some(field) = self.out.get_mut(start + 4..start + 8) {
            field.copy_from_slice(&length.to_le_bytes());
        }
    }
}

fn time(out: &mut Vec<u8>, nanoseconds: u64) {
    let bytes = nanoseconds.to_le_bytes();
    let (low, high) = bytes.split_at(4);
    out.extend_from_slice(high);
    out.extend_from_slice(low);
}

fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    out.extend(code.to_le_bytes());
    out.extend(u16::try_from(value.len()).unwrap_or(0).to_le_bytes());
    out.extend_from_slice(value);
    pad(out, value.len());
}

/// Pads a value of this length to 32 bits.
fn pad(out: &mut Vec<u8>, length: usize) {
    out.extend(std::iter::repeat_n(0, length.wrapping_neg() % 4));
}
