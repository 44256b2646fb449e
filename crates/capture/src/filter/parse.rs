//! The parser: an expression as a tree of primitives.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::BadFilter;

/// Parentheses and negations within each other.
const MAX_DEPTH: usize = 100;
const PRIMITIVE: &str = "a primitive such as tcp, host ADDRESS or port NUMBER";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Expression {
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
    Not(Box<Self>),
    Protocol(Protocol),
    Host(Option<Network>, Direction, IpAddr),
    Net(Option<Network>, Direction, IpAddr, u8),
    Port(Option<Transport>, Direction, u16, u16),
    AtMost(u32),
    AtLeast(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Protocol {
    Network(Network),
    Transport(Transport),
    Icmp,
    Icmp6,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Network {
    Ip,
    Ip6,
    Arp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    Either,
    Both,
    Source,
    Destination,
}

pub(super) fn parse(text: &str) -> Result<Expression, BadFilter> {
    let mut parser = Parser {
        tokens: tokens(text),
        at: 0,
        depth: 0,
    };
    let expression = parser.expression()?;
    match parser.next() {
        None => Ok(expression),
        Some(found) => Err(unexpected(found, "and, or, or the end")),
    }
}

/// Splits the text at blanks and around operators.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    for word in text.split_whitespace() {
        let mut rest = word;
        while !rest.is_empty() {
            let length = if rest.starts_with("&&") || rest.starts_with("||") {
                2
            } else if rest.starts_with(['(', ')', '!']) {
                1
            } else {
                rest.find(['(', ')', '!', '&', '|'])
                    .filter(|length| *length > 0)
                    .unwrap_or(rest.len())
            };
            let (token, after) = rest.split_at(length);
            tokens.push(token);
            rest = after;
        }
    }
    tokens
}

struct Parser<'a> {
    tokens: Vec<&'a str>,
    at: usize,
    depth: usize,
}

impl<'a> Parser<'a> {
    fn peek(&self) -> Option<&'a str> {
        self.tokens.get(self.at).copied()
    }

    fn next(&mut self) -> Option<&'a str> {
        let token = self.peek();
        self.at += 1;
        token
    }

    fn take(&mut self, wanted: &[&str]) -> bool {
        let found = self.peek().is_some_and(|token| wanted.contains(&token));
        if found {
            self.at += 1;
        }
        found
    }

    fn word(&mut self, expected: &'static str) -> Result<&'a str, BadFilter> {
        self.next().ok_or(BadFilter::Ends { expected })
    }

    /// `and` and `or` have the same precedence and associate to the left, as in tcpdump.
    fn expression(&mut self) -> Result<Expression, BadFilter> {
        let mut left = self.negation()?;
        loop {
            if self.take(&["and", "&&"]) {
                let right = self.negation()?;
                left = Expression::And(Box::new(left), Box::new(right));
            } else if self.take(&["or", "||"]) {
                let right = self.negation()?;
                left = Expression::Or(Box::new(left), Box::new(right));
            } else {
                return Ok(left);
            }
        }
    }

    fn negation(&mut self) -> Result<Expression, BadFilter> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(BadFilter::TooDeep);
        }
        let expression = if self.take(&["not", "!"]) {
            Expression::Not(Box::new(self.negation()?))
        } else if self.take(&["("]) {
            let inner = self.expression()?;
            match self.word("a closing parenthesis")? {
                ")" => inner,
                found => return Err(unexpected(found, "a closing parenthesis")),
            }
        } else {
            self.primitive()?
        };
        self.depth -= 1;
        Ok(expression)
    }

    fn primitive(&mut self) -> Result<Expression, BadFilter> {
        let first = self.word(PRIMITIVE)?;
        let protocol = match first {
            "ip" => Some(Protocol::Network(Network::Ip)),
            "ip6" => Some(Protocol::Network(Network::Ip6)),
            "arp" => Some(Protocol::Network(Network::Arp)),
            "tcp" => Some(Protocol::Transport(Transport::Tcp)),
            "udp" => Some(Protocol::Transport(Transport::Udp)),
            "sctp" => Some(Protocol::Transport(Transport::Sctp)),
            "icmp" => return Ok(Expression::Protocol(Protocol::Icmp)),
            "icmp6" => return Ok(Expression::Protocol(Protocol::Icmp6)),
            "less" => return self.number("a length").map(Expression::AtMost),
            "greater" => return self.number("a length").map(Expression::AtLeast),
            _ => {
                self.at -= 1;
                None
            }
        };
        let direction = self.direction()?;
        match (protocol, self.peek()) {
            (_, Some("host")) => {
                self.at += 1;
                let network = network(protocol, "host")?;
                let address = self.address(network)?;
                Ok(Expression::Host(
                    network,
                    direction.unwrap_or(Direction::Either),
                    address,
                ))
            }
            (_, Some("net")) => {
                self.at += 1;
                let network = network(protocol, "net")?;
                let (address, prefix) = self.network(network)?;
                let direction = direction.unwrap_or(Direction::Either);
                Ok(Expression::Net(network, direction, address, prefix))
            }
            (_, Some("port")) => {
                self.at += 1;
                let transport = transport(protocol, "port")?;
                let port = self.port(self.peek())?;
                self.at += 1;
                let direction = direction.unwrap_or(Direction::Either);
                Ok(Expression::Port(transport, direction, port, port))
            }
            (_, Some("portrange")) => {
                self.at += 1;
                let transport = transport(protocol, "portrange")?;
                let text = self.word("a range of ports")?;
                let (first, last) = text.split_once('-').unwrap_or((text, text));
                let (first, last) = (self.port(Some(first))?, self.port(Some(last))?);
                let direction = direction.unwrap_or(Direction::Either);
                let (first, last) = (first.min(last), first.max(last));
                Ok(Expression::Port(transport, direction, first, last))
            }
            (Some(protocol), _) if direction.is_none() => Ok(Expression::Protocol(protocol)),
            (_, None) => Err(BadFilter::Ends {
                expected: "host, net, port or portrange",
            }),
            (_, Some(found)) if direction.is_some() => {
                Err(unexpected(found, "host, net, port or portrange"))
            }
            (_, Some(found)) => Err(unexpected(found, PRIMITIVE)),
        }
    }

    /// `src`, `dst`, `src or dst`, `src and dst`.
    fn direction(&mut self) -> Result<Option<Direction>, BadFilter> {
        if self.take(&["dst"]) {
            return Ok(Some(Direction::Destination));
        }
        if !self.take(&["src"]) {
            return Ok(None);
        }
        let next = self.tokens.get(self.at + 1).copied();
        let joined = match (self.peek(), next) {
            (Some("or" | "||"), Some("dst")) => Direction::Either,
            (Some("and" | "&&"), Some("dst")) => Direction::Both,
            _ => return Ok(Some(Direction::Source)),
        };
        self.at += 2;
        Ok(Some(joined))
    }

    fn number(&mut self, expected: &'static str) -> Result<u32, BadFilter> {
        let word = self.word(expected)?;
        word.parse().map_err(|_| unexpected(word, expected))
    }

    fn port(&self, text: Option<&str>) -> Result<u16, BadFilter> {
        let expected = "a port number";
        let text = text.ok_or(BadFilter::Ends { expected })?;
        text.parse().map_err(|_| unexpected(text, expected))
    }

    fn address(&mut self, network: Option<Network>) -> Result<IpAddr, BadFilter> {
        let expected = "an IP address";
        let word = self.word(expected)?;
        let address: IpAddr = word.parse().map_err(|_| unexpected(word, expected))?;
        fits(network, address, word)
    }

    fn network(&mut self, network: Option<Network>) -> Result<(IpAddr, u8), BadFilter> {
        let expected = "a network such as 10.0.0.0/8";
        let word = self.word(expected)?;
        let wrong = || unexpected(word, expected);
        let (address, prefix) = word.split_once('/').ok_or_else(wrong)?;
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let (bits, host) = match address {
            IpAddr::V4(address) => (32, u128::from(address.to_bits()) << 96),
            IpAddr::V6(address) => (128, address.to_bits()),
        };
        // Bits beyond the prefix are a mistake, as for tcpdump.
        let beyond = host.checked_shl(prefix.into()).unwrap_or(0);
        if prefix > bits || beyond != 0 {
            return Err(wrong());
        }
        Ok((fits(network, address, word)?, prefix))
    }
}

fn fits(network: Option<Network>, address: IpAddr, word: &str) -> Result<IpAddr, BadFilter> {
    let fits = match network {
        None => true,
        Some(Network::Ip | Network::Arp) => address.is_ipv4(),
        Some(Network::Ip6) => address.is_ipv6(),
    };
    if fits {
        return Ok(address);
    }
    Err(BadFilter::WrongFamily(shortened(word)))
}

fn network(protocol: Option<Protocol>, found: &'static str) -> Result<Option<Network>, BadFilter> {
    match protocol {
        None => Ok(None),
        Some(Protocol::Network(network)) => Ok(Some(network)),
        Some(_) => Err(unexpected(
            found,
            "port or portrange after a transport protocol",
        )),
    }
}

fn transport(
    protocol: Option<Protocol>,
    found: &'static str,
) -> Result<Option<Transport>, BadFilter> {
    match protocol {
        None => Ok(None),
        Some(Protocol::Transport(transport)) => Ok(Some(transport)),
        Some(_) => Err(unexpected(found, "host or net after a network protocol")),
    }
}

fn unexpected(found: &str, expected: &'static str) -> BadFilter {
    BadFilter::Unexpected {
        found: shortened(found),
        expected,
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(60).collect()
}

impl Network {
    /// The family of the addresses of an IP address's protocol.
    pub(super) fn of(address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => Self::Ip,
            IpAddr::V6(_) => Self::Ip6,
        }
    }
}

/// Splits an address and its mask into words of 32 bits, as programs compare them.
pub(super) fn words(address: IpAddr, prefix: u8) -> Vec<(u32, u32)> {
    let v4 = |address: Ipv4Addr| vec![address.to_bits()];
    let v6 = |address: Ipv6Addr| {
        let bits = address.to_bits().to_be_bytes();
        let words = bits.chunks_exact(4);
        words
            .filter_map(|word| Some(u32::from_be_bytes(*word.first_chunk()?)))
            .collect()
    };
    let words: Vec<u32> = match address {
        IpAddr::V4(address) => v4(address),
        IpAddr::V6(address) => v6(address),
    };
    let masks = (0_u32..).map(|index| {
        let bits = u32::from(prefix).saturating_sub(32 * index).min(32);
        u32::MAX.checked_shl(32 - bits).unwrap_or(0)
    });
    words.into_iter().zip(masks).collect()
}
