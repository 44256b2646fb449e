use std::fmt;
use std::net::Ipv6Addr;
use std::path::PathBuf;

use crate::Error;

const DEFAULT_PORT: u16 = 50000;

/// The address of a node: `HOST`, `HOST:PORT`, `[V6]:PORT` or `unix:PATH`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// A TCP address, spoken to with TLS.
    Tcp {
        /// Host name or IP address, without brackets.
        host: String,
        /// TCP port.
        port: u16,
    },
    /// A unix socket, where the kernel identifies the caller.
    Unix(PathBuf),
}

impl Endpoint {
    /// Parses an endpoint; the default port is 50000.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let bad = || Error::InvalidEndpoint(text.to_owned());
        if let Some(path) = text.strip_prefix("unix:") {
            return if path.is_empty() {
                Err(bad())
            } else {
                Ok(Self::Unix(PathBuf::from(path)))
            };
        }
        let (host, port) = if text.parse::<Ipv6Addr>().is_ok() {
            (text, None)
        } else if let Some(rest) = text.strip_prefix('[') {
            let (host, port) = rest.split_once(']').ok_or_else(bad)?;
            host.parse::<Ipv6Addr>().map_err(|_| bad())?;
            match port.strip_prefix(':') {
                Some(port) => (host, Some(port)),
                None if port.is_empty() => (host, None),
                None => return Err(bad()),
            }
        } else {
            match text.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (text, None),
            }
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':');
        if host.is_empty() || !host.chars().all(plain) {
            return Err(bad());
        }
        let port = match port {
            Some(port) => port
                .parse()
                .ok()
                .filter(|port| *port != 0)
                .ok_or_else(bad)?,
            None => DEFAULT_PORT,
        };
        Ok(Self::Tcp {
            host: host.to_owned(),
            port,
        })
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp { host, port } => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Option<String> {
        Endpoint::parse(text)
            .ok()
            .map(|endpoint| endpoint.to_string())
    }

    #[test]
    fn every_form_of_an_endpoint_is_parsed() {
        for (text, parsed) in [
            ("node1", "node1:50000"),
            ("10.0.0.5:7", "10.0.0.5:7"),
            ("::1", "[::1]:50000"),
            ("[fe00::1]", "[fe00::1]:50000"),
            ("[fe00::1]:9", "[fe00::1]:9"),
            ("unix:/run/x.sock", "unix:/run/x.sock"),
        ] {
            assert_eq!(shown(text).as_deref(), Some(parsed), "{text}");
        }
    }

    #[test]
    fn malformed_endpoints_are_rejected() {
        for text in [
            "", ":1", "a:", "a:b", "a:0", "a:99999", "a b", "[::1", "[x]:1", "[::1]9", "unix:",
            "a/b",
        ] {
            assert_eq!(shown(text), None, "{text:?}");
        }
    }
}
