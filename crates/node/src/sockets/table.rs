//! The kernel's socket tables: one line per socket, addresses in host byte order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::text::number;

/// Socket states as the kernel numbers them.
const LISTENING: u8 = 10;
const ESTABLISHED: u8 = 1;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Tcp,
    Tcp6,
    Udp,
    Udp6,
    UdpLite,
    UdpLite6,
    Raw,
    Raw6,
}

impl Protocol {
    pub const ALL: [Self; 8] = [
        Self::Tcp,
        Self::Tcp6,
        Self::Udp,
        Self::Udp6,
        Self::UdpLite,
        Self::UdpLite6,
        Self::Raw,
        Self::Raw6,
    ];

    /// The name of its table in `/proc/net`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Tcp6 => "tcp6",
            Self::Udp => "udp",
            Self::Udp6 => "udp6",
            Self::UdpLite => "udplite",
            Self::UdpLite6 => "udplite6",
            Self::Raw => "raw",
            Self::Raw6 => "raw6",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Socket {
    pub protocol: Protocol,
    pub local: (IpAddr, u16),
    pub remote: (IpAddr, u16),
    /// As the kernel numbers it: 1 established to 11 closing.
    pub state: u8,
    pub send_queue: u64,
    pub receive_queue: u64,
    /// As the kernel numbers it: 0 off to 4 probing.
    pub timer: u8,
    /// In clock ticks.
    pub timer_when: u64,
    pub retransmits: u64,
    pub uid: u32,
    pub unanswered_probes: u64,
    pub inode: u64,
    pub references: u64,
    pub pointer: u64,
}

impl Socket {
    /// True for a listening socket, or a connectionless one without a peer.
    pub fn waits_for_anybody(&self) -> bool {
        match self.protocol {
            Protocol::Tcp | Protocol::Tcp6 => self.state == LISTENING,
            _ => self.state != ESTABLISHED,
        }
    }
}

/// Parses lines as in `/proc/net/tcp`, without the header and malformed ones.
pub fn parse(table: &[u8], protocol: Protocol) -> impl Iterator<Item = Socket> {
    table
        .split(|byte| *byte == b'\n')
        .filter_map(move |line| socket(line, protocol))
}

fn socket(line: &[u8], protocol: Protocol) -> Option<Socket> {
    let mut words = line
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty());
    // The hash slot, an internal number of the kernel.
    words.next()?;
    let local = address(words.next()?)?;
    let remote = address(words.next()?)?;
    let state = u8::try_from(hexadecimal(words.next()?)?).ok()?;
    let (send_queue, receive_queue) = pair(words.next()?)?;
    let (timer, timer_when) = pair(words.next()?)?;
    Some(Socket {
        protocol,
        local,
        remote,
        state,
        send_queue,
        receive_queue,
        timer: u8::try_from(timer).ok()?,
        timer_when,
        retransmits: hexadecimal(words.next()?)?,
        uid: number(words.next()?)?,
        unanswered_probes: number(words.next()?)?,
        inode: number(words.next()?)?,
        references: words.next().and_then(number).unwrap_or(0),
        pointer: words.next().and_then(hexadecimal).unwrap_or(0),
    })
}

/// Parses `0100007F:1F90`, or an address of four such words.
fn address(word: &[u8]) -> Option<(IpAddr, u16)> {
    let (host, port) = split(word)?;
    let port = u16::try_from(hexadecimal(port)?).ok()?;
    let part = |from: usize| {
        let digits = host.get(from..from + 8)?;
        Some(u32::try_from(hexadecimal(digits)?).ok()?.to_ne_bytes())
    };
    let ip = match host.len() {
        8 => IpAddr::V4(Ipv4Addr::from(part(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (index, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&part(index * 8)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some((ip, port))
}

fn pair(word: &[u8]) -> Option<(u64, u64)> {
    let (first, second) = split(word)?;
    Some((hexadecimal(first)?, hexadecimal(second)?))
}

fn split(word: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = word.iter().position(|byte| *byte == b':')?;
    Some((word.get(..colon)?, word.get(colon + 1..)?))
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() || digits.len() > 16 {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(value << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_listener_is_parsed_with_all_fields() {
        let table = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when \
retrnsmt   uid  timeout inode\n   0: 0100007F:C350 00000000:0000 0A 00000001:00000002 \
02:0000000B 00000003  1000        4 12345 2 ffff9c0a12345678 100 0 0 10 0\n";
        // Written as a little-endian machine writes it.
        let localhost = Ipv4Addr::from(0x0100_007F_u32.to_ne_bytes());
        let all: Vec<Socket> = parse(table, Protocol::Tcp).collect();
        let expected = Socket {
            protocol: Protocol::Tcp,
            local: (localhost.into(), 50000),
            remote: (Ipv4Addr::UNSPECIFIED.into(), 0),
            state: 10,
            send_queue: 1,
            receive_queue: 2,
            timer: 2,
            timer_when: 11,
            retransmits: 3,
            uid: 1000,
            unanswered_probes: 4,
            inode: 12345,
            references: 2,
            pointer: 0xffff_9c0a_1234_5678,
        };
        assert_eq!(all, [expected]);
        assert!(all[0].waits_for_anybody());
    }

    /// Formats an address as the kernel does.
    fn written(ip: IpAddr, port: u16) -> String {
        let bytes = match ip {
            IpAddr::V4(ip) => ip.octets().to_vec(),
            IpAddr::V6(ip) => ip.octets().to_vec(),
        };
        let words: String = bytes
            .chunks_exact(4)
            .map(|four| format!("{:08X}", u32::from_ne_bytes(four.try_into().unwrap())))
            .collect();
        format!("{words}:{port:04X}")
    }

    proptest! {
        #[test]
        fn every_address_is_parsed_as_written(ip: IpAddr, port: u16, state in 1_u8..12, inode: u64) {
            let address = written(ip, port);
            let line = format!(
                "1: {address} {address} {state:02X} 0:0 0:0 0 0 0 {inode} 1 0"
            );
            let all: Vec<Socket> = parse(line.as_bytes(), Protocol::Udp6).collect();
            prop_assert_eq!(all.len(), 1);
            prop_assert_eq!(all[0].local, (ip, port));
            prop_assert_eq!(all[0].remote, (ip, port));
            prop_assert_eq!((all[0].state, all[0].inode), (state, inode));
        }

        #[test]
        fn no_table_causes_a_panic(table in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&table, Protocol::Tcp).count();
        }
    }
}
