//! Routes of all tables: RTM_GETROUTE.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::interfaces::interfaces;
use super::message::{address, attributes, number, u32_at};
use super::netlink::Netlink;

const RTM_GETROUTE: u16 = 26;
/// Length of `struct rtmsg`.
const ROUTE_BYTES: usize = 12;
/// Length of `struct rtnexthop`.
const NEXT_HOP_BYTES: usize = 8;
/// A cached result of a lookup, not an entry of the table.
const RTM_F_CLONED: u32 = 0x200;

const RTA_DST: u16 = 1;
const RTA_SRC: u16 = 2;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_PREFSRC: u16 = 7;
const RTA_MULTIPATH: u16 = 9;
const RTA_TABLE: u16 = 15;
const RTA_VIA: u16 = 18;

const TYPES: [&str; 12] = [
    "unspec",
    "unicast",
    "local",
    "broadcast",
    "anycast",
    "multicast",
    "blackhole",
    "unreachable",
    "prohibit",
    "throw",
    "nat",
    "xresolve",
];

/// An address family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// The kernel's number.
    pub fn number(self) -> u8 {
        match self {
            Self::V4 => 2,
            Self::V6 => 10,
        }
    }

    pub(super) fn from_number(number: u8) -> Option<Self> {
        [Self::V4, Self::V6]
            .into_iter()
            .find(|family| family.number() == number)
    }

    pub(super) fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Self::V4)
    }

    fn any(self) -> IpAddr {
        match self {
            Self::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Self::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    pub family: Family,
    /// The destination and its prefix length; length 0 is a default route.
    pub destination: (IpAddr, u8),
    /// The prefix that the source of a packet must have; `None` for any.
    pub from: Option<(IpAddr, u8)>,
    pub gateway: Option<IpAddr>,
    /// The name of the outgoing interface; empty if there is none.
    pub interface: String,
    pub metric: u32,
    pub preferred_source: Option<IpAddr>,
    pub scope: u8,
    pub protocol: u8,
    pub table: u32,
    /// The type, such as `unicast`; its number if unknown.
    pub kind: String,
    pub flags: u32,
    /// The next hops of a multipath route.
    pub next_hops: Vec<NextHop>,
}

/// One of several next hops of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextHop {
    pub gateway: Option<IpAddr>,
    pub interface: String,
    pub weight: u32,
}

/// Returns the routes of all tables in the kernel's order, IPv4 before IPv6.
pub fn routes() -> io::Result<Vec<Route>> {
    let links: HashMap<u32, String> = interfaces()?
        .into_iter()
        .map(|interface| (interface.index, interface.name))
        .collect();
    // An interface that appeared meanwhile is named by its index.
    let name = |index: u32| {
        let known = links.get(&index).cloned();
        known.unwrap_or_else(|| format!("if{index}"))
    };
    let mut netlink = Netlink::open()?;
    let mut routes = Vec::new();
    for family in [Family::V4, Family::V6] {
        let mut request = [0; ROUTE_BYTES];
        request[0] = family.number();
        let bodies = match netlink.dump(RTM_GETROUTE, &request) {
            Ok(bodies) => bodies,
            // A kernel without IPv6.
            Err(error)
                if family == Family::V6
                    && matches!(
                        error
                            .raw_os_error()
                            .map(rustix::io::Errno::from_raw_os_error),
                        Some(rustix::io::Errno::AFNOSUPPORT | rustix::io::Errno::OPNOTSUPP)
                    ) =>
            {
                Vec::new()
            }
            Err(error) => return Err(error),
        };
        let found = bodies.iter().filter_map(|body| parse(family, body, &name));
        routes.extend(found);
    }
    Ok(routes)
}

pub(super) fn parse(family: Family, body: &[u8], name: &dyn Fn(u32) -> String) -> Option<Route> {
    let [of, destination_length, source_length, _] = number(body, 0)?;
    let [table, protocol, scope, kind] = number(body, 4)?;
    let flags = u32_at(body, 8)?;
    // The kernel may also send what was not asked for, such as multicast routes.
    if of != family.number() || flags & RTM_F_CLONED != 0 {
        return None;
    }
    let known = TYPES.get(usize::from(kind)).map(|&name| name.to_owned());
    let mut route = Route {
        family,
        destination: (family.any(), destination_length),
        from: (source_length > 0).then(|| (family.any(), source_length)),
        gateway: None,
        interface: String::new(),
        metric: 0,
        preferred_source: None,
        scope,
        protocol,
        table: table.into(),
        kind: known.unwrap_or_else(|| kind.to_string()),
        flags,
        next_hops: Vec::new(),
    };
    let own = |value: &[u8]| address(value).filter(|address| family.has(*address));
    for (kind, value) in attributes(body.get(ROUTE_BYTES..)?) {
        match kind {
            RTA_DST => route.destination.0 = own(value)?,
            RTA_SRC => route.from = own(value).map(|source| (source, source_length)),
            RTA_OIF => route.interface = name(u32_at(value, 0)?),
            RTA_GATEWAY => route.gateway = own(value),
            RTA_VIA => route.gateway = via(value),
            RTA_PRIORITY => route.metric = u32_at(value, 0)?,
            RTA_PREFSRC => route.preferred_source = own(value),
            RTA_TABLE => route.table = u32_at(value, 0)?,
            RTA_MULTIPATH => route.next_hops = next_hops(value, name),
            _ => {}
        }
    }
    if let Some(first) = route.next_hops.first() {
        route.interface.clone_from(&first.interface);
        route.gateway = first.gateway;
    }
    Some(route)
}

/// Reads a gateway of another family: `struct rtvia`.
fn via(value: &[u8]) -> Option<IpAddr> {
    address(value.get(2..)?)
}

fn next_hops(mut bytes: &[u8], name: &dyn Fn(u32) -> String) -> Vec<NextHop> {
    let mut found = Vec::new();
    while let Some((hop, length)) = next_hop(bytes, name) {
        found.push(hop);
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn next_hop(bytes: &[u8], name: &dyn Fn(u32) -> String) -> Option<(NextHop, usize)> {
    let length = usize::from(u16::from_ne_bytes(number(bytes, 0)?));
    let [_, hops] = number(bytes, 2)?;
    let inner = bytes.get(NEXT_HOP_BYTES..length)?;
    let gateway = attributes(inner).find_map(|(kind, value)| match kind {
        RTA_GATEWAY => address(value),
        RTA_VIA => via(value),
        _ => None,
    });
    let hop = NextHop {
        gateway,
        interface: name(u32_at(bytes, 4)?),
        // The kernel counts from 0.
        weight: u32::from(hops) + 1,
    };
    Some((hop, length))
}

/// Returns the name of a route protocol in lower case, such as `kernel`.
pub fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        0 => "unspec",
        1 => "redirect",
        2 => "kernel",
        3 => "boot",
        4 => "static",
        8 => "gated",
        9 => "ra",
        10 => "mrt",
        11 => "zebra",
        12 => "bird",
        13 => "dnrouted",
        14 => "xorp",
        15 => "ntk",
        16 => "dhcp",
        17 => "mrouted",
        18 => "keepalived",
        42 => "babel",
        99 => "openr",
        186 => "bgp",
        187 => "isis",
        188 => "ospf",
        189 => "rip",
        192 => "eigrp",
        other => return other.to_string(),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_route_to_itself() {
        let routes = routes().unwrap();
        let local = routes.iter().find(|route| {
            route.family == Family::V4 && route.kind == "local" && route.interface == "lo"
        });
        assert_eq!(local.map(|route| route.table), Some(255));
    }
}
