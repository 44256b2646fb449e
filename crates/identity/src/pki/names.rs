//! The names in a certificate, normalised. An invalid name must not prevent a node from starting,
//! so it is left out.

use std::net::IpAddr;

use rcgen::SanType;
use rcgen::string::Ia5String;
use rustls_pki_types::{DnsName, ServerName};

use super::error::PkiError;

/// Longest common name X.509 allows, in characters.
pub(crate) const COMMON_NAME_MAX: usize = 64;

/// The names of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeNames {
    /// The node's host name; it becomes the certificate's common name.
    pub common_name: String,
    /// DNS names clients may reach it by.
    pub dns: Vec<String>,
    /// Addresses clients may reach it by.
    pub ips: Vec<IpAddr>,
}

impl NodeNames {
    /// The names as a TLS client would ask for them: valid ones only, each once. An address
    /// given among the DNS names counts as an address.
    pub(crate) fn server_names(&self) -> Vec<ServerName<'static>> {
        let mut names = Vec::new();
        let given = self.dns.iter().filter_map(|name| server_name(name));
        let addresses = self
            .ips
            .iter()
            .map(|ip| ServerName::from(ip.to_canonical()));
        for name in given.chain(addresses) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        names
    }

    pub(crate) fn alternative_names(&self) -> Vec<SanType> {
        self.server_names()
            .iter()
            .filter_map(alternative_name)
            .collect()
    }
}

fn server_name(text: &str) -> Option<ServerName<'static>> {
    let text = text.trim().trim_end_matches('.').to_ascii_lowercase();
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Some(ServerName::from(ip.to_canonical()));
    }
    DnsName::try_from(text).ok().map(ServerName::DnsName)
}

fn alternative_name(name: &ServerName<'_>) -> Option<SanType> {
    match name {
        ServerName::DnsName(name) => Ia5String::try_from(name.as_ref())
            .ok()
            .map(SanType::DnsName),
        ServerName::IpAddress(ip) => Some(SanType::IpAddress(IpAddr::from(*ip))),
        _ => None,
    }
}

/// A common name fit for a certificate and for a log line: control characters dropped, runs of
/// white space made one space, cut to the length X.509 allows.
pub(crate) fn common_name(given: &str) -> Result<String, PkiError> {
    let words: Vec<String> = given
        .split_whitespace()
        .map(|word| word.chars().filter(|c| !c.is_control()).collect::<String>())
        .filter(|word| !word.is_empty())
        .collect();
    let name: String = words.join(" ").chars().take(COMMON_NAME_MAX).collect();
    let name = name.trim_end().to_owned();
    if name.is_empty() {
        Err(PkiError::NoName {
            given: given.to_owned(),
        })
    } else {
        Ok(name)
    }
}
