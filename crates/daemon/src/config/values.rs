//! The value types of the configuration, each checked as it is read.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use mainstay_fanout::{Host, Target, Targets};
use mainstay_identity::Role;
use serde::{Deserialize, Serialize, Serializer};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadValue(String);

/// A duration as operators write it: `10s`, `24h`, `7days`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Span(pub Duration);

impl FromStr for Span {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        humantime::parse_duration(text).map(Self).map_err(|_| {
            BadValue(format!(
                "\"{text}\" is not a duration; write 10s, 5m or 24h"
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
                "\"{text}\" is too small; the minimum is 4KiB"
            ))),
            None => Err(bad()),
        }
    }
}

/// A share in percent: `10%`. At most 90, so that something is left for the other side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Percent(pub u8);

impl FromStr for Percent {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let number = text
            .strip_suffix('%')
            .and_then(|number| number.parse().ok());
        number
            .filter(|percent| *percent <= 90)
            .map(Self)
            .ok_or_else(|| BadValue(format!("\"{text}\" is not a share; write 0% to 90%")))
    }
}

/// The address of the read-only pods service for original clients. It authenticates nobody, so
/// only a loopback address is accepted.
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
                "{address} is not a loopback address; the pods listener authenticates nobody, \
                 so it only listens on 127.0.0.1 or [::1]"
            )));
        }
        Ok(Self(address))
    }
}

/// A DNS name or IP address in the node certificate.
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

/// A name of another node that callers may write in `nodes`.
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

/// The address of another node.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct PeerAddress(pub Target);

impl FromStr for PeerAddress {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        Target::parse(text).map(Self).map_err(|_| {
            BadValue(format!(
                "\"{text}\" is not the address of a node; write HOST or HOST:PORT"
            ))
        })
    }
}

/// The nodes that calls are forwarded to: `peers`, `any` or `off`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct ForwardingTargets(pub Targets);

impl FromStr for ForwardingTargets {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        text.parse().map(Self).map_err(|_| {
            BadValue(format!(
                "\"{text}\" is not a choice of targets; write peers, any or off"
            ))
        })
    }
}

/// The highest role that a node may assert for the callers it forwards for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct MaxRole(pub Role);

impl FromStr for MaxRole {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        text.parse()
            .map(Self)
            .map_err(|error: mainstay_identity::UnknownRole| BadValue(error.to_string()))
    }
}

/// The path of a unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct SocketPath(pub PathBuf);

impl FromStr for SocketPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        // The kernel's limit without the NUL byte at the end.
        const MAX_BYTES: usize = 107;
        if !text.starts_with('/') || text.contains('\0') {
            return Err(BadValue(format!(
                "\"{text}\" is not the path of a socket; write /run/containerd/containerd.sock"
            )));
        }
        if text.len() > MAX_BYTES {
            return Err(BadValue(format!(
                "\"{text}\" is too long for a socket; the kernel accepts {MAX_BYTES} bytes"
            )));
        }
        Ok(Self(PathBuf::from(text)))
    }
}

/// The absolute path of a directory that is hidden in cells.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HiddenPath(pub PathBuf);

impl FromStr for HiddenPath {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        if !text.starts_with('/') || text == "/" || text.contains('\0') {
            return Err(BadValue(format!(
                "\"{text}\" cannot be hidden; write the absolute path of a directory"
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

/// The path of a cgroup of our own below the root of each hierarchy.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct CgroupName(pub String);

impl FromStr for CgroupName {
    type Err = BadValue;

    fn from_str(text: &str) -> Result<Self, BadValue> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let part =
            |part: &str| !part.is_empty() && part.chars().all(allowed) && !part.starts_with('.');
        if text.len() <= 200 && text.split('/').all(part) {
            return Ok(Self(text.to_owned()));
        }
        let quoted: String = text.chars().take(80).collect();
        Err(BadValue(format!(
            "{quoted:?} is not the path of a cgroup; write mainstay or system/mainstay"
        )))
    }
}

/// The least severe level that is logged. Calls are always logged.
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

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        humantime::format_duration(self.0).fmt(f)
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(1_u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
        match units.iter().find(|(unit, _)| self.0.is_multiple_of(*unit)) {
            Some((unit, name)) => write!(f, "{}{name}", self.0 / unit),
            None => write!(f, "{}", self.0),
        }
    }
}

impl fmt::Display for CertificateName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dns(name) => f.write_str(name),
            Self::Ip(ip) => ip.fmt(f),
        }
    }
}

impl fmt::Display for PeerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.port {
            Some(port) => self.0.address(port).fmt(f),
            None => self.0.host.fmt(f),
        }
    }
}

impl fmt::Display for HiddenPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.display())
    }
}

impl fmt::Display for SocketPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.display().fmt(f)
    }
}

macro_rules! shown_as_inner {
    ($($kind:ty),+) => {$(
        impl fmt::Display for $kind {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { self.0.fmt(f) }
        }
    )+};
}
shown_as_inner!(PodsAddress, PeerName, Serial, CgroupName, MaxRole);

impl fmt::Display for ForwardingTargets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Reads and writes a value as the text that an operator writes.
macro_rules! as_text {
    ($($kind:ty),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = BadValue;
            fn try_from(text: String) -> Result<Self, BadValue> { text.parse() }
        }

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}
as_text!(
    Span,
    Percent,
    ByteSize,
    PodsAddress,
    CertificateName,
    SocketPath,
    HiddenPath,
    CgroupName,
    Serial,
    LogLevel,
    PeerName,
    PeerAddress,
    ForwardingTargets,
    MaxRole
);

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
            let _ = text.parse::<HiddenPath>();
            let _ = text.parse::<Serial>();
            let _ = text.parse::<LogLevel>();
            let _ = text.parse::<PeerName>();
            let _ = text.parse::<PeerAddress>();
            let _ = text.parse::<ForwardingTargets>();
            let _ = text.parse::<MaxRole>();
            let _ = text.parse::<CgroupName>();
        }
    }
}
