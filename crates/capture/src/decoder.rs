//! Reads a stream of pcap or pcapng as it arrives, little-endian as nodes write it.
//!
//! The bytes come from another machine: every length is checked before it is used, and no more than
//! one block is buffered.

use crate::pcap::{HEADER_BYTES, MAGIC_MICROSECONDS, MAGIC_NANOSECONDS, RECORD_BYTES};
use crate::pcapng::{
    BYTE_ORDER, INTERFACE, OPTION_DROPPED, OPTION_END, OPTION_RECEIVED, OPTION_TIME_RESOLUTION,
    PACKET, SECTION, STATISTICS,
};
use crate::{MAX_SNAP_LEN, Packet, Statistics};

/// The largest block: a packet with its headers.
const MAX_BLOCK_BYTES: usize = MAX_SNAP_LEN as usize + 1024;

/// The next part of a capture.
#[derive(Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// The link type of the packets that follow, by its number, and the most bytes kept of each.
    Interface {
        link: u16,
        snap_len: u32,
    },
    Packet(Packet<'a>),
    /// Counters as of a time, in nanoseconds since 1970 UTC.
    Statistics(u64, Statistics),
}

/// The stream is not a capture.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the capture is corrupt at byte {at}: {why}")]
pub struct Corrupt {
    at: u64,
    why: &'static str,
}

#[derive(Debug, Clone, Copy)]
enum Stage {
    Start,
    /// Nanoseconds per unit of its times.
    Pcap(u64),
    Pcapng,
}

/// A decoder of one stream.
#[derive(Debug)]
pub struct Decoder {
    stage: Stage,
    buffer: Vec<u8>,
    /// Bytes of the buffer that were returned as items.
    used: usize,
    at: u64,
}

impl Default for Decoder {
    fn default() -> Self {
        Self {
            stage: Stage::Start,
            buffer: Vec::new(),
            used: 0,
            at: 0,
        }
    }
}

impl Decoder {
    /// Adds bytes of the stream.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.drain(..self.used);
        self.used = 0;
        self.buffer.extend_from_slice(bytes);
    }

    /// Returns the next item; `None` until more bytes are there.
    pub fn next_item(&mut self) -> Result<Option<Item<'_>>, Corrupt> {
        loop {
            let rest = self.buffer.get(self.used..).unwrap_or_default();
            let at = self.at;
            let corrupt = |why| Corrupt { at, why };
            let length = match self.stage {
                Stage::Start => match rest.first_chunk().map(|magic| u32::from_le_bytes(*magic)) {
                    None => return Ok(None),
                    Some(MAGIC_MICROSECONDS | MAGIC_NANOSECONDS) => HEADER_BYTES,
                    Some(SECTION) => {
                        self.stage = Stage::Pcapng;
                        continue;
                    }
                    Some(_) => return Err(corrupt("it is neither pcap nor pcapng")),
                },
                Stage::Pcap(_) => match number(rest, 8) {
                    None => return Ok(None),
                    Some(captured) if captured as usize > MAX_BLOCK_BYTES => {
                        return Err(corrupt("a packet is too long"));
                    }
                    Some(captured) => RECORD_BYTES + captured as usize,
                },
                Stage::Pcapng => match number(rest, 4) {
                    None => return Ok(None),
                    Some(length) if !(12..=MAX_BLOCK_BYTES).contains(&(length as usize)) => {
                        return Err(corrupt("a block has an impossible length"));
                    }
                    Some(length) if length % 4 != 0 => {
                        return Err(corrupt("a block is not padded"));
                    }
                    Some(length) => length as usize,
                },
            };
            if rest.len() < length {
                return Ok(None);
            }
            let start = self.used;
            self.used += length;
            self.at += length as u64;
            // Borrowed again, because the positions have changed.
            let block = self.buffer.get(start..start + length).unwrap_or_default();
            match self.stage {
                Stage::Start => {
                    let scale = match number(block, 0) {
                        Some(MAGIC_NANOSECONDS) => 1,
                        _ => 1000,
                    };
                    self.stage = Stage::Pcap(scale);
                    let link = number(block, 20).and_then(|link| u16::try_from(link).ok());
                    return Ok(Some(Item::Interface {
                        link: link.ok_or_else(|| corrupt("the link type is unknown"))?,
                        snap_len: number(block, 16).unwrap_or(0),
                    }));
                }
                Stage::Pcap(scale) => return Ok(record(block, scale).map(Item::Packet)),
                // Blocks of other kinds are allowed anywhere.
                Stage::Pcapng if item(block).map_err(corrupt)?.is_none() => {}
                Stage::Pcapng => return item(block).map_err(corrupt),
            }
        }
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    let chunk = bytes.get(at..)?.first_chunk()?;
    Some(u32::from_le_bytes(*chunk))
}

fn record(block: &[u8], scale: u64) -> Option<Packet<'_>> {
    let seconds = u64::from(number(block, 0)?) * 1_000_000_000;
    Some(Packet {
        time: seconds + u64::from(number(block, 4)?) * scale,
        length: number(block, 12)?,
        data: block.get(RECORD_BYTES..)?,
    })
}

/// Reads a block of pcapng; `None` if it is of no interest.
fn item(block: &[u8]) -> Result<Option<Item<'_>>, &'static str> {
    const SHORT: &str = "a block is too short";
    let body = block.get(8..block.len() - 4).ok_or(SHORT)?;
    match number(block, 0).ok_or(SHORT)? {
        SECTION => match number(body, 0) {
            Some(BYTE_ORDER) => Ok(None),
            _ => Err("its byte order is not that of a node"),
        },
        INTERFACE => {
            let link = body.first_chunk().ok_or(SHORT)?;
            for (code, value) in options(body.get(8..).ok_or(SHORT)?) {
                if code == OPTION_TIME_RESOLUTION && value.first() != Some(&9) {
                    return Err("its times are not in nanoseconds");
                }
            }
            Ok(Some(Item::Interface {
                link: u16::from_le_bytes(*link),
                snap_len: number(body, 4).ok_or(SHORT)?,
            }))
        }
        PACKET => {
            let captured = number(body, 12).ok_or(SHORT)? as usize;
            let high = u64::from(number(body, 4).ok_or(SHORT)?);
            let low = u64::from(number(body, 8).ok_or(SHORT)?);
            Ok(Some(Item::Packet(Packet {
                time: high << 32 | low,
                length: number(body, 16).ok_or(SHORT)?,
                data: body
                    .get(20..)
                    .and_then(|data| data.get(..captured))
                    .ok_or(SHORT)?,
            })))
        }
        STATISTICS => {
            let mut statistics = Statistics::default();
            for (code, value) in options(body.get(12..).ok_or(SHORT)?) {
                let count = value.first_chunk().map(|count| u64::from_le_bytes(*count));
                match code {
                    OPTION_RECEIVED => statistics.received = count.ok_or(SHORT)?,
                    OPTION_DROPPED => statistics.dropped = count.ok_or(SHORT)?,
                    _ => {}
                }
            }
            let high = u64::from(number(body, 4).ok_or(SHORT)?);
            let low = u64::from(number(body, 8).ok_or(SHORT)?);
            Ok(Some(Item::Statistics(high << 32 | low, statistics)))
        }
        _ => Ok(None),
    }
}

/// Iterates over the options of a block; ends at the first that does not fit.
fn options(mut bytes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (code, rest) = bytes.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (code, length) = (u16::from_le_bytes(*code), u16::from_le_bytes(*length));
        let length = usize::from(length);
        let value = rest.get(..length)?;
        bytes = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        (code != OPTION_END).then_some((code, value))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pcapng::Encoder;
    use crate::{LinkType, pcap};
    use proptest::prelude::*;

    #[derive(Debug, Clone, PartialEq, Eq)]
    enum Owned {
        Interface(u16, u32),
        Packet(u64, u32, Vec<u8>),
        Statistics(u64, Statistics),
    }

    /// Decodes a stream that arrives in chunks of this size.
    fn decode(bytes: &[u8], chunk: usize) -> Result<Vec<Owned>, Corrupt> {
        let mut decoder = Decoder::default();
        let mut items = Vec::new();
        for chunk in bytes.chunks(chunk) {
            decoder.push(chunk);
            while let Some(item) = decoder.next_item()? {
                items.push(match item {
                    Item::Interface { link, snap_len } => Owned::Interface(link, snap_len),
                    Item::Packet(packet) => {
                        Owned::Packet(packet.time, packet.length, packet.data.to_vec())
                    }
                    Item::Statistics(at, statistics) => Owned::Statistics(at, statistics),
                });
            }
        }
        Ok(items)
    }

    fn packets() -> impl Strategy<Value = Vec<(u64, u32, Vec<u8>)>> {
        let packet = (
            0..4_000_000_000_000_000_000_u64,
            any::<u32>(),
            proptest::collection::vec(any::<u8>(), 0..200),
        );
        proptest::collection::vec(packet, 0..20)
    }

    proptest! {
        #[test]
        fn pcapng_is_read_as_it_was_written(packets in packets(), chunk in 1_usize..300, dropped: u64) {
            let mut encoder = Encoder::default();
            encoder.start("eth0", LinkType::Raw, 99);
            for (time, length, data) in &packets {
                encoder.packet(Packet { time: *time, length: *length, data });
            }
            let statistics = Statistics { received: 7, dropped };
            encoder.statistics(5, statistics);
            let mut expected = vec![Owned::Interface(101, 99)];
            expected.extend(packets.into_iter().map(|(time, length, data)| Owned::Packet(time, length, data)));
            expected.push(Owned::Statistics(5, statistics));
            prop_assert_eq!(decode(&encoder.take(), chunk), Ok(expected));
        }

        #[test]
        fn pcap_is_read_as_it_was_written(packets in packets(), chunk in 1_usize..300) {
            let mut bytes = Vec::new();
            pcap::header(&mut bytes, LinkType::Ethernet, 77);
            for (time, length, data) in &packets {
                pcap::packet(&mut bytes, Packet { time: *time, length: *length, data });
            }
            let mut expected = vec![Owned::Interface(1, 77)];
            expected.extend(packets.into_iter().map(|(time, length, data)| Owned::Packet(time / 1000 * 1000, length, data)));
            prop_assert_eq!(decode(&bytes, chunk), Ok(expected));
        }

        #[test]
        fn no_bytes_make_it_panic(start in 0_usize..3, bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let magic = [MAGIC_MICROSECONDS, SECTION, 0][start];
            let mut stream = magic.to_le_bytes().to_vec();
            stream.extend(bytes);
            let _ = decode(&stream, 50);
        }
    }

    #[test]
    fn lengths_beyond_the_bound_are_refused_before_they_are_buffered() {
        let mut bytes = Vec::new();
        pcap::header(&mut bytes, LinkType::Ethernet, 77);
        bytes.extend([0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0, 0]);
        assert!(
            decode(&bytes, 100)
                .unwrap_err()
                .to_string()
                .contains("byte 24")
        );
        let mut block = SECTION.to_le_bytes().to_vec();
        block.extend(0x7fff_fff0_u32.to_le_bytes());
        assert!(decode(&block, 100).is_err());
    }
}
