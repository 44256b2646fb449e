//! The kinds of values the configuration is made of, each checked as it is read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mainstay_fanout::{Host, Target};
use serde::Deserialize;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(String);

/// A length of time as people write it: `10s`, `24h`, `7days`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        humantime::parse_duration(text).map(Self).map_err(|_| {
            BadValue(format!(
                "\"{text}\" is not a length of time; write 10s, 5m or 24h"
            ))
        })
    }
}

/// A number of bytes: `16MiB`, `1GiB`, `500kB` or a plain number in quotes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ByteSize(pub u64);

impl FromStr for ByteSize {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let bad = || {
            BadValue(format!(
                "\"{text}\" is not a size; write 16MiB, 1GiB or 500kB"
            ))
        };
        let digits = text
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(text.len());
        let number: u64 = text[..digits].parse().map_err(|_| bad())?;
        let unit: u64 = match text[digits..].trim() {
            "" | "B" => 1,
            "kB" | "KB" => 1000,
            "MB" => 1000 * 1000,
            "GB" => 1000 * 1000 * 1000,
            "KiB" | "K" => 1 << 10,
            "MiB" | "M" => 1 << 20,
            "GiB" | "G" => 1 << 30,
            _ => return Err(bad()),
        };
        match number.checked_mul(unit) {
            Some(bytes) if bytes >= 4096 => Ok(Self(bytes)),
            Some(_) => Err(BadValue(format!(
                "\"{text}\" is too small; the least is 4KiB"
            ))),
            None => Err(bad()),
        }
    }
}

/// Where the read-only pods service for original clients listens. It has no identity, so only
/// a loopback address is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PodsAddress(pub SocketAddr);

impl FromStr for PodsAddress {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let address: SocketAddr = text.parse().map_err(|_| {
            BadValue(format!(
                "\"{text}\" is not an address; write 127.0.0.1:15441"
            ))
        })?;
        if !address.ip().is_loopback() {
            return Err(BadValue(format!(
                "{address} is not a loopback address; the pods listener asks nobody who they are, \
                 so it only listens on 127.0.0.1 or [::1]"
            )));
        }
        Ok(Self(address))
    }
}

/// A name or address that the node certificate carries.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum CertificateName {
    Dns(String),
    Ip(IpAddr),
}

impl FromStr for CertificateName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if let Ok(ip) = text.parse() {
            return Ok(Self::Ip(ip));
        }
        let label = |label: &str| {
            !label.is_empty()
                && label.len() <= 63
                && !label.starts_with('-')
                && !label.ends_with('-')
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        if text.len() <= 253 && text.split('.').all(label) {
            Ok(Self::Dns(text.to_ascii_lowercase()))
        } else {
            Err(BadValue(format!(
                "\"{text}\" is neither a host name nor an IP address"
            )))
        }
    }
}

/// Another node by a name of our choice: what callers may write in `nodes`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct PeerName(pub String);

impl FromStr for PeerName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        match Target::parse(text) {
            Ok(Target {
                host: Host::Name(name),
                port: None,
            }) => Ok(Self(name)),
            _ => Err(BadValue(format!("\"{text}\" is not a name for a node"))),
        }
    }
}

/// Where another node listens.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PeerAddress(pub Target);

impl FromStr for PeerAddress {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Target::parse(text).map(Self).map_err(|_| {
            BadValue(format!(
                "\"{text}\" is not where a node listens; write HOST or HOST:PORT"
            ))
        })
    }
}

/// The path of a unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SocketPath(pub PathBuf);

impl FromStr for SocketPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        // The kernel's own limit, less the zero at the end.
        const MOST_BYTES: usize = 107;
        if !text.starts_with('/') || text.contains('\0') {
            return Err(BadValue(format!(
                "\"{text}\" is not the path of a socket; write /run/containerd/containerd.sock"
            )));
        }
        if text.len() > MOST_BYTES {
            return Err(BadValue(format!(
                "\"{text}\" is too long for a socket; the kernel takes {MOST_BYTES} bytes"
            )));
        }
        Ok(Self(PathBuf::from(text)))
    }
}

/// The serial number of a certificate, as `mainstay pki show` prints it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct Serial(pub String);

impl FromStr for Serial {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let hex: String = text.chars().filter(|c| *c != ':').collect();
        if hex.is_empty() || hex.len() > 40 || !hex.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(BadValue(format!(
                "\"{text}\" is not a serial number; mainstay pki show prints them"
            )));
        }
        Ok(Self(hex.to_ascii_lowercase()))
    }
}

/// How much the daemon says. Calls are always logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl FromStr for LogLevel {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Ok(match text {
            "error" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => {
                return Err(BadValue(format!(
                    "\"{text}\" is not a log level; write error, warn, info, debug or trace"
                )));
            }
        })
    }
}

impl fmt::Display for LogLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        })
    }
}

macro_rules! read_from_text {
    ($($kind:ty),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = BadValue;
            fn try_from(text: String) -> Result<Self, BadValue> { text.parse() }
        }
    )+};
}
read_from_text!(
    Span,
    ByteSize,
    PodsAddress,
    CertificateName,
    SocketPath,
    Serial,
    LogLevel,
    PeerName,
    PeerAddress
);

/// The path of a control group below the root of each tree, of our own.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CgroupName(pub String);

impl TryFrom<String> for CgroupName {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let may = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let part = |part: &str| !part.is_empty() && part.chars().all(may) && !part.starts_with('.');
        if text.len() <= 200 && text.split('/').all(part) {
            Ok(Self(text))
        } else {
            let shown: String = text.chars().take(80).collect();
            Err(format!(
                "{shown:?} is not the path of a control group; write mainstay or system/mainstay"
            ))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_have_binary_and_decimal_units() {
        assert_eq!("16MiB".parse(), Ok(ByteSize(16 << 20)));
        assert_eq!("5 GB".parse(), Ok(ByteSize(5_000_000_000)));
        assert!("12B".parse::<ByteSize>().is_err());
        assert!("99999999999999999999GiB".parse::<ByteSize>().is_err());
    }

    #[test]
    fn serials_are_compared_without_colons_and_case() {
        assert_eq!("AB:cd:01".parse(), Ok(Serial("abcd01".to_owned())));
    }

    proptest! {
        #[test]
        fn no_text_makes_a_value_panic(text in ".{0,80}") {
            let _ = text.parse::<Span>();
            let _ = text.parse::<ByteSize>();
            let _ = text.parse::<PodsAddress>();
            let _ = text.parse::<CertificateName>();
            let _ = text.parse::<SocketPath>();
            let _ = text.parse::<Serial>();
            let _ = text.parse::<LogLevel>();
            let _ = text.parse::<PeerName>();
            let _ = text.parse::<PeerAddress>();
        }
    }
}
