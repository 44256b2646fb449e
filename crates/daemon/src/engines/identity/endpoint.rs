//! The endpoint in the administrator's client configuration: one that works from other machines
//! once the node listens beyond loopback.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};

use super::AURAE_SERVER_NAME;
use crate::config::{CertificateName, DEFAULT_LISTEN};

/// Returns the endpoint for `listen`: the address itself, or for all addresses the first name the
/// configuration gives the node, else the address other machines most likely reach it by. The default
/// port is left out, since clients of this API append it themselves.
pub(super) fn endpoint(listen: SocketAddr, names: &[CertificateName]) -> String {
    let host = if listen.ip().is_unspecified() {
        named(names).unwrap_or_else(|| Host::Ip(reachable(listen.ip())))
    } else {
        Host::Ip(listen.ip())
    };
    let port = listen.port();
    match host {
        Host::Name(name) if port == DEFAULT_LISTEN.port() => name,
        Host::Name(name) => format!("{name}:{port}"),
        Host::Ip(ip) if port == DEFAULT_LISTEN.port() => ip.to_string(),
        Host::Ip(ip) => SocketAddr::new(ip, port).to_string(),
    }
}

enum Host {
    Name(String),
    Ip(IpAddr),
}

fn named(names: &[CertificateName]) -> Option<Host> {
    names.iter().find_map(|name| match name {
        CertificateName::Dns(name) if name == AURAE_SERVER_NAME || name.contains('*') => None,
        CertificateName::Dns(name) => Some(Host::Name(name.clone())),
        CertificateName::Ip(ip) => Some(Host::Ip(*ip)),
    })
}

/// Returns the source address of the default route, else any address that is not a loopback one,
/// else loopback.
fn reachable(unspecified: IpAddr) -> IpAddr {
    let v4 = (
        Ipv4Addr::UNSPECIFIED.into(),
        Ipv4Addr::new(192, 0, 2, 1).into(),
    );
    let documentation = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
    let v6 = (Ipv6Addr::UNSPECIFIED.into(), documentation.into());
    // A socket for all IPv6 addresses usually accepts IPv4 too.
    let routes: &[(IpAddr, IpAddr)] = if unspecified.is_ipv4() {
        &[v4]
    } else {
        &[v4, v6]
    };
    let routed = routes
        .iter()
        .find_map(|(from, to)| source_address(*from, *to));
    let suits = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback() && !ip.is_link_local(),
        IpAddr::V6(ip) => unspecified.is_ipv6() && !ip.is_loopback(),
    };
    routed
        .filter(suits)
        .or_else(|| mainstay_node::own_addresses().into_iter().find(suits))
        .unwrap_or(match unspecified {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        })
}

/// Asks the routing table. Connecting a datagram socket sends nothing.
fn source_address(from: IpAddr, to: IpAddr) -> Option<IpAddr> {
    let socket = UdpSocket::bind((from, 0)).ok()?;
    socket.connect((to, 9)).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dns(name: &str) -> CertificateName {
        CertificateName::Dns(name.to_owned())
    }

    #[test]
    fn the_default_port_is_left_out() {
        for (listen, wanted) in [
            ("127.0.0.1:50000", "127.0.0.1"),
            ("127.0.0.1:7", "127.0.0.1:7"),
            ("10.0.0.5:50000", "10.0.0.5"),
            ("[::1]:50000", "::1"),
            ("[fd00::1]:7", "[fd00::1]:7"),
        ] {
            let names = [dns("node1")];
            assert_eq!(endpoint(listen.parse().unwrap(), &names), wanted);
        }
    }

    #[test]
    fn a_node_that_listens_everywhere_has_the_name_it_was_given() {
        let names = [dns(AURAE_SERVER_NAME), dns("*.example.org"), dns("node1")];
        let everywhere = |port| SocketAddr::from(([0, 0, 0, 0], port));
        assert_eq!(endpoint(everywhere(50000), &names), "node1");
        assert_eq!(endpoint(everywhere(7), &names), "node1:7");
        let names = [CertificateName::Ip("fd00::1".parse().unwrap())];
        assert_eq!(endpoint(everywhere(50000), &names), "fd00::1");
        assert_eq!(endpoint(everywhere(7), &names), "[fd00::1]:7");
    }

    #[test]
    fn without_a_name_it_is_an_address_and_never_the_unspecified_one() {
        for listen in ["0.0.0.0:7", "[::]:7"] {
            let found: SocketAddr = endpoint(listen.parse().unwrap(), &[]).parse().unwrap();
            assert!(!found.ip().is_unspecified(), "{found}");
            assert_eq!(found.port(), 7);
        }
    }
}
