//! The code generator. It writes a program from its end to its start, so that every jump knows its
//! target; distances that do not fit into a comparison go over an unconditional jump.

use std::net::IpAddr;

use super::BadFilter;
use super::parse::{Direction, Expression, Network, Protocol, Transport, words};
use crate::{Instruction, LinkType};

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
const LOAD_LENGTH: u16 = 0x80;
/// Loads a half word relative to X.
const LOAD_HALF_X: u16 = 0x48;
/// X = 4 × the low nibble of a byte: the length of an IPv4 header.
const LOAD_HEADER_LENGTH: u16 = 0xb1;
const AND: u16 = 0x54;
const JUMP: u16 = 0x05;
const IF_EQUAL: u16 = 0x15;
const IF_GREATER: u16 = 0x25;
const IF_AT_LEAST: u16 = 0x35;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const TCP: u32 = 6;
const UDP: u32 = 17;
const SCTP: u32 = 132;
const ICMP: u32 = 1;
const ICMP6: u32 = 58;
/// The extension header of a fragment, which names the protocol of its payload.
const FRAGMENT: u32 = 44;

/// A position in the program, counted from its end.
type Label = usize;

pub(super) fn emit(
    expression: &Expression,
    link: LinkType,
    snap_len: u32,
) -> Result<Vec<Instruction>, BadFilter> {
    let mut program = Program {
        reversed: Vec::new(),
        link,
    };
    let reject = program.push(RETURN, 0);
    let accept = program.push(RETURN, snap_len);
    let start = program.expression(expression, accept, reject)?;
    // An expression without a test starts at one of the two ends.
    if start + 1 < program.reversed.len() {
        program.jump(start);
    }
    program.reversed.reverse();
    Ok(program.reversed)
}

struct Program {
    reversed: Vec<Instruction>,
    link: LinkType,
}

/// A chain of tests is written from its last to its first; each returns where it starts.
impl Program {
    fn push(&mut self, op: u16, k: u32) -> Label {
        self.reversed.push(Instruction {
            op,
            jt: 0,
            jf: 0,
            k,
        });
        self.reversed.len() - 1
    }

    /// Instructions between the next one and a label.
    fn distance(&self, to: Label) -> usize {
        self.reversed.len() - to - 1
    }

    fn jump(&mut self, to: Label) -> Label {
        let distance = u32::try_from(self.distance(to)).unwrap_or(u32::MAX);
        self.push(JUMP, distance)
    }

    /// Makes sure that a comparison can reach the label, and that no other jump comes between.
    fn near(&mut self, to: Label, reserve: usize) -> Label {
        if self.distance(to) + reserve <= usize::from(u8::MAX) {
            return to;
        }
        self.jump(to)
    }

    fn test(&mut self, op: u16, k: u32, holds: Label, fails: Label) -> Label {
        // A jump for the second label moves the first one away by one.
        let holds = self.near(holds, 1);
        let fails = self.near(fails, 0);
        let offset = |to| u8::try_from(self.distance(to)).unwrap_or(u8::MAX);
        let (jt, jf) = (offset(holds), offset(fails));
        self.reversed.push(Instruction { op, jt, jf, k });
        self.reversed.len() - 1
    }

    /// Loads a value, masks it and compares it.
    fn field(
        &mut self,
        (load, at): (u16, u32),
        mask: Option<u32>,
        value: u32,
        holds: Label,
        fails: Label,
    ) -> Label {
        self.test(IF_EQUAL, value, holds, fails);
        if let Some(mask) = mask {
            self.push(AND, mask);
        }
        self.push(load, at)
    }

    /// The offset of the network header.
    fn base(&self) -> u32 {
        match self.link {
            LinkType::Ethernet => 14,
            LinkType::Raw => 0,
        }
    }

    fn expression(
        &mut self,
        expression: &Expression,
        holds: Label,
        fails: Label,
    ) -> Result<Label, BadFilter> {
        match expression {
            Expression::And(left, right) => {
                let right = self.expression(right, holds, fails)?;
                self.expression(left, right, fails)
            }
            Expression::Or(left, right) => {
                let right = self.expression(right, holds, fails)?;
                self.expression(left, holds, right)
            }
            Expression::Not(inner) => self.expression(inner, fails, holds),
            Expression::Protocol(protocol) => self.protocol(*protocol, holds, fails),
            Expression::Host(network, direction, address) => {
                let prefix = if address.is_ipv4() { 32 } else { 128 };
                self.addresses(*network, *direction, *address, prefix, holds, fails)
            }
            Expression::Net(network, direction, address, prefix) => {
                self.addresses(*network, *direction, *address, *prefix, holds, fails)
            }
            Expression::Port(transport, direction, first, last) => {
                Ok(self.ports(*transport, *direction, (*first, *last), holds, fails))
            }
            Expression::AtMost(length) => {
                self.test(IF_GREATER, *length, fails, holds);
                Ok(self.push(LOAD_LENGTH, 0))
            }
            Expression::AtLeast(length) => {
                self.test(IF_AT_LEAST, *length, holds, fails);
                Ok(self.push(LOAD_LENGTH, 0))
            }
        }
    }

    fn protocol(
        &mut self,
        protocol: Protocol,
        holds: Label,
        fails: Label,
    ) -> Result<Label, BadFilter> {
        match protocol {
            Protocol::Network(network) => self.network(network, holds, fails),
            Protocol::Transport(transport) => {
                let number = transport.number();
                let ip = self.ip_protocol(number, holds, fails);
                Ok(self.ip6_protocol(number, holds, ip))
            }
            Protocol::Icmp => Ok(self.ip_protocol(ICMP, holds, fails)),
            Protocol::Icmp6 => Ok(self.ip6_protocol(ICMP6, holds, fails)),
        }
    }

    fn network(
        &mut self,
        network: Network,
        holds: Label,
        fails: Label,
    ) -> Result<Label, BadFilter> {
        match (self.link, network) {
            (LinkType::Ethernet, Network::Arp) => Ok(self.ether_type(0x0806, holds, fails)),
            (LinkType::Raw, Network::Arp) => Err(BadFilter::NotOnLink("arp")),
            (_, Network::Ip) => Ok(self.is_ip(holds, fails)),
            (_, Network::Ip6) => Ok(self.is_ip6(holds, fails)),
        }
    }

    fn ether_type(&mut self, kind: u32, holds: Label, fails: Label) -> Label {
        self.field((LOAD_HALF, 12), None, kind, holds, fails)
    }

    fn is_ip(&mut self, holds: Label, fails: Label) -> Label {
        match self.link {
            LinkType::Ethernet => self.ether_type(0x0800, holds, fails),
            LinkType::Raw => self.field((LOAD_BYTE, 0), Some(0xf0), 0x40, holds, fails),
        }
    }

    fn is_ip6(&mut self, holds: Label, fails: Label) -> Label {
        match self.link {
            LinkType::Ethernet => self.ether_type(0x86dd, holds, fails),
            LinkType::Raw => self.field((LOAD_BYTE, 0), Some(0xf0), 0x60, holds, fails),
        }
    }

    fn ip_protocol(&mut self, number: u32, holds: Label, fails: Label) -> Label {
        let at = self.base() + 9;
        let inside = self.field((LOAD_BYTE, at), None, number, holds, fails);
        self.is_ip(inside, fails)
    }

    fn ip6_protocol(&mut self, number: u32, holds: Label, fails: Label) -> Label {
        let base = self.base();
        let fragment = self.field((LOAD_BYTE, base + 40), None, number, holds, fails);
        let fragment = self.field((LOAD_BYTE, base + 6), None, FRAGMENT, fragment, fails);
        let inside = self.field((LOAD_BYTE, base + 6), None, number, holds, fragment);
        self.is_ip6(inside, fails)
    }

    fn addresses(
        &mut self,
        network: Option<Network>,
        direction: Direction,
        address: IpAddr,
        prefix: u8,
        holds: Label,
        fails: Label,
    ) -> Result<Label, BadFilter> {
        let words = words(address, prefix);
        let base = self.base();
        let kinds: &[Network] = match (network, Network::of(address)) {
            (Some(Network::Arp), _) if self.link == LinkType::Raw => {
                return Err(BadFilter::NotOnLink("arp"));
            }
            (Some(network), _) => &[network],
            (None, Network::Ip) if self.link == LinkType::Ethernet => {
                // As for tcpdump: a host is also one that ARP asks for.
                &[Network::Ip, Network::Arp]
            }
            (None, Network::Ip) => &[Network::Ip],
            (None, _) => &[Network::Ip6],
        };
        let mut next = fails;
        for kind in kinds.iter().rev() {
            let (source, destination) = match kind {
                Network::Ip => (base + 12, base + 16),
                Network::Ip6 => (base + 8, base + 24),
                Network::Arp => (base + 14, base + 24),
            };
            let at = |program: &mut Self, at, holds, fails| {
                program.compare_words(at, &words, holds, fails)
            };
            let inside = match direction {
                Direction::Source => at(self, source, holds, fails),
                Direction::Destination => at(self, destination, holds, fails),
                Direction::Either => {
                    let second = at(self, destination, holds, fails);
                    at(self, source, holds, second)
                }
                Direction::Both => {
                    let second = at(self, destination, holds, fails);
                    at(self, source, second, fails)
                }
            };
            next = match kind {
                // libpcap treats RARP like ARP.
                Network::Arp if network.is_none() => {
                    let reverse = self.ether_type(0x8035, inside, next);
                    self.ether_type(0x0806, inside, reverse)
                }
                kind => self.network(*kind, inside, next)?,
            };
        }
        Ok(next)
    }

    fn compare_words(
        &mut self,
        at: u32,
        words: &[(u32, u32)],
        holds: Label,
        fails: Label,
    ) -> Label {
        let mut next = holds;
        let offsets = (at..).step_by(4);
        let wanted: Vec<_> = words.iter().zip(offsets).collect();
        for (&(word, mask), offset) in wanted.into_iter().rev() {
            if mask == 0 {
                continue;
            }
            let mask = (mask != u32::MAX).then_some(mask);
            next = self.field((LOAD_WORD, offset), mask, word, next, fails);
        }
        next
    }

    fn ports(
        &mut self,
        transport: Option<Transport>,
        direction: Direction,
        range: (u16, u16),
        holds: Label,
        fails: Label,
    ) -> Label {
        let base = self.base();
        let numbers: &[u32] = match transport {
            Some(Transport::Tcp) => &[TCP],
            Some(Transport::Udp) => &[UDP],
            Some(Transport::Sctp) => &[SCTP],
            None => &[TCP, UDP, SCTP],
        };
        // IPv4: only the first fragment has ports, after a header of variable length.
        self.port_pair((LOAD_HALF_X, base), direction, range, holds, fails);
        let header = self.push(LOAD_HEADER_LENGTH, base);
        self.test(IF_ANY_BIT, 0x1fff, fails, header);
        let mut ip = self.push(LOAD_HALF, base + 6);
        ip = self.one_of((LOAD_BYTE, base + 9), numbers, ip, fails);
        let ip = self.is_ip(ip, fails);
        // IPv6: without extension headers.
        let found = self.port_pair((LOAD_HALF, base + 40), direction, range, holds, fails);
        let ip6 = self.one_of((LOAD_BYTE, base + 6), numbers, found, fails);
        self.is_ip6(ip6, ip)
    }

    fn one_of(&mut self, field: (u16, u32), values: &[u32], holds: Label, fails: Label) -> Label {
        let mut next = fails;
        for value in values {
            next = self.field(field, None, *value, holds, next);
        }
        next
    }

    /// Compares the source and destination ports at a place.
    fn port_pair(
        &mut self,
        (load, at): (u16, u32),
        direction: Direction,
        range: (u16, u16),
        holds: Label,
        fails: Label,
    ) -> Label {
        let port = |program: &mut Self, at, holds, fails| {
            program.in_range((load, at), range, holds, fails)
        };
        match direction {
            Direction::Source => port(self, at, holds, fails),
            Direction::Destination => port(self, at + 2, holds, fails),
            Direction::Either => {
                let second = port(self, at + 2, holds, fails);
                port(self, at, holds, second)
            }
            Direction::Both => {
                let second = port(self, at + 2, holds, fails);
                port(self, at, second, fails)
            }
        }
    }

    fn in_range(
        &mut self,
        (load, at): (u16, u32),
        (first, last): (u16, u16),
        holds: Label,
        fails: Label,
    ) -> Label {
        if first == last {
            return self.field((load, at), None, first.into(), holds, fails);
        }
        let upper = self.test(IF_GREATER, last.into(), fails, holds);
        self.test(IF_AT_LEAST, first.into(), upper, fails);
        self.push(load, at)
    }
}

impl Transport {
    fn number(self) -> u32 {
        match self {
            Self::Tcp => TCP,
            Self::Udp => UDP,
            Self::Sctp => SCTP,
        }
    }
}
