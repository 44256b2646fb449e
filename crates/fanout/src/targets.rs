//! The nodes that calls may be forwarded to: a node that connects to any address for any caller
//! would be a port scanner.

use std::net::IpAddr;
use std::str::FromStr;

use tonic::Status;

use crate::fanout::Settings;
use crate::target::{Address, Host, Target};

/// The nodes that calls may be forwarded to. A node always answers for itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Targets {
    /// The configured peers, by name or address.
    #[default]
    Peers,
    Any,
    Off,
}

/// The error of text that is none of the values of `forwarding.targets`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("is not a choice of forwarding targets; write peers, any or off")]
pub struct UnknownTargets;

impl Targets {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Peers => "peers",
            Self::Any => "any",
            Self::Off => "off",
        }
    }
}

impl FromStr for Targets {
    type Err = UnknownTargets;

    fn from_str(text: &str) -> Result<Self, UnknownTargets> {
        [Self::Peers, Self::Any, Self::Off]
            .into_iter()
            .find(|targets| targets.as_str() == text)
            .ok_or(UnknownTargets)
    }
}

/// Where a node that a caller names is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here,
    There(Address),
    /// Somewhere this node does not forward to.
    Refused(Refusal),
}

/// The reason that a call is not forwarded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error(
        "no request forwarding: it is not a peer of the forwarding node; add it to [peers] there, \
         or set forwarding.targets = \"any\""
    )]
    NotAPeer,
    #[error(
        "no request forwarding: the forwarding node answers only for itself; set \
         forwarding.targets = \"peers\" or \"any\" there"
    )]
    Off,
}

impl Refusal {
    pub(crate) fn status(self) -> Status {
        Status::permission_denied(self.to_string())
    }
}

impl Settings {
    pub(crate) fn place(&self, target: &Target, own: &mut OwnAddresses) -> Place {
        let is_own = |port: u16| port == self.own_address.port();
        let mut own_port = target.port.is_none_or(is_own);
        let mut address = target.address(self.port);
        if let Host::Name(name) = &target.host {
            if own_port && name.eq_ignore_ascii_case(&self.own_name) {
                return Place::Here;
            }
            if let Some(peer) = self.peers.get(name) {
                address.host = peer.host.clone();
                address.port = target.port.unwrap_or(peer.port);
                own_port = is_own(address.port);
            }
        }
        if let Host::Ip(ip) = &address.host
            && own_port
            && (*ip == self.own_address.ip() || own.contains(ip))
        {
            return Place::Here;
        }
        let is_peer = |address: &Address| self.peers.values().any(|peer| peer == address);
        // A peer named by its address alone is reached on the port it is configured with.
        if target.port.is_none()
            && !is_peer(&address)
            && let Some(peer) = self.peers.values().find(|peer| peer.host == address.host)
        {
            address.port = peer.port;
        }
        match self.targets {
            Targets::Any => Place::There(address),
            Targets::Peers if is_peer(&address) => Place::There(address),
            Targets::Peers => Place::Refused(Refusal::NotAPeer),
            Targets::Off => Place::Refused(Refusal::Off),
        }
    }
}

/// The addresses of this node, looked up at most once a call.
pub(crate) struct OwnAddresses {
    find: fn() -> Vec<IpAddr>,
    found: Option<Vec<IpAddr>>,
}

impl OwnAddresses {
    pub(crate) fn unknown(find: fn() -> Vec<IpAddr>) -> Self {
        Self { find, found: None }
    }

    fn contains(&mut self, ip: &IpAddr) -> bool {
        self.found.get_or_insert_with(self.find).contains(ip)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    fn settings(targets: Targets) -> Settings {
        let peer = |text: &str| Target::parse(text).unwrap().address(50000);
        Settings {
            targets,
            port: 50000,
            connect_timeout: Duration::from_secs(1),
            answer_timeout: Duration::from_secs(1),
            peers: BTreeMap::from([
                ("n2".to_owned(), peer("10.0.0.2")),
                ("n3".to_owned(), peer("10.0.0.3:6000")),
                ("db".to_owned(), peer("db.example.com")),
            ]),
            revoked: BTreeSet::new(),
            own_name: "n1".to_owned(),
            own_address: ([0, 0, 0, 0], 50000).into(),
        }
    }

    fn place(targets: Targets, text: &str) -> Place {
        let mut own = OwnAddresses::unknown(|| vec![[10, 0, 0, 1].into()]);
        settings(targets).place(&Target::parse(text).unwrap(), &mut own)
    }

    #[test]
    fn peers_are_found_by_name_and_by_address() {
        let at = |text: &str| Place::There(Target::parse(text).unwrap().address(50000));
        for (named, wanted) in [
            ("n2", "10.0.0.2:50000"),
            ("10.0.0.2", "10.0.0.2:50000"),
            ("10.0.0.2:50000", "10.0.0.2:50000"),
            ("N3", "10.0.0.3:6000"),
            ("10.0.0.3", "10.0.0.3:6000"),
            ("db", "db.example.com:50000"),
            ("db.example.com", "db.example.com:50000"),
        ] {
            assert_eq!(place(Targets::Peers, named), at(wanted), "{named}");
            assert_eq!(place(Targets::Any, named), at(wanted), "{named}");
        }
    }

    #[test]
    fn other_hosts_and_other_ports_of_peers_are_refused() {
        for named in [
            "10.0.0.4",
            "n2:22",
            "10.0.0.2:22",
            "10.0.0.1:22",
            "localhost:1",
        ] {
            let refused = Place::Refused(Refusal::NotAPeer);
            assert_eq!(place(Targets::Peers, named), refused, "{named}");
            let anywhere = place(Targets::Any, named);
            assert!(matches!(anywhere, Place::There(_)), "{named}");
        }
    }

    #[test]
    fn a_node_always_answers_for_itself() {
        for targets in [Targets::Peers, Targets::Any, Targets::Off] {
            for named in ["n1", "N1:50000", "10.0.0.1", "10.0.0.1:50000"] {
                assert_eq!(place(targets, named), Place::Here, "{named}");
            }
        }
        assert_eq!(place(Targets::Off, "n2"), Place::Refused(Refusal::Off));
    }
}
