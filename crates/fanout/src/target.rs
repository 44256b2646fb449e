//! Parsing of the node names in the metadata `node` and `nodes`.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

/// A node as a client names it: a host name or an address, with a port or without.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub host: Host,
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Host {
    Name(String),
    Ip(IpAddr),
}

/// The address a node listens on.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Address {
    pub host: Host,
    pub port: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{shown:?} does not name a node; send one value a node: a host name, an address or host:port"
)]
pub struct BadTarget {
    shown: String,
}

/// The maximum length of a DNS name.
const MAX_NAME_BYTES: usize = 253;

impl Target {
    pub fn parse(text: &str) -> Result<Self, BadTarget> {
        Self::read(text).ok_or_else(|| BadTarget {
            shown: text.chars().take(64).collect(),
        })
    }

    fn read(text: &str) -> Option<Self> {
        if let Ok(ip) = text.parse::<IpAddr>() {
            return Some(Self {
                host: Host::Ip(ip),
                port: None,
            });
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (ip, port) = rest.split_once(']')?;
            let port = match port {
                "" => None,
                port => Some(read_port(port.strip_prefix(':')?)?),
            };
            let host = Host::Ip(IpAddr::V6(ip.parse::<Ipv6Addr>().ok()?));
            return Some(Self { host, port });
        }
        let (name, port) = match text.split_once(':') {
            Some((name, port)) => (name, Some(read_port(port)?)),
            None => (text, None),
        };
        let host = match name.parse::<IpAddr>() {
            Ok(ip) => Host::Ip(ip),
            Err(_) if is_host_name(name) => Host::Name(name.to_ascii_lowercase()),
            Err(_) => return None,
        };
        Some(Self { host, port })
    }

    /// The address to connect to; `fleet_port` unless the client named a port.
    pub fn address(&self, fleet_port: u16) -> Address {
        Address {
            host: self.host.clone(),
            port: self.port.unwrap_or(fleet_port),
        }
    }
}

fn read_port(text: &str) -> Option<u16> {
    // `parse` would take a sign.
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|port| digits && *port != 0)
}

fn is_host_name(name: &str) -> bool {
    let label = |label: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
        !label.is_empty()
            && label.len() <= 63
            && !label.starts_with('-')
            && !label.ends_with('-')
            && label.bytes().all(plain)
    };
    let name = name.strip_suffix('.').unwrap_or(name);
    // `10.1` is no name: resolvers read it as an address, and not as the one meant.
    let number = |label: &str| label.bytes().all(|b| b.is_ascii_digit());
    name.len() <= MAX_NAME_BYTES
        && name.split('.').all(label)
        && !name.rsplit('.').next().is_some_and(number)
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Ip(IpAddr::V6(ip)) => write!(f, "[{ip}]:{}", self.port),
            host => write!(f, "{host}:{}", self.port),
        }
    }
}
