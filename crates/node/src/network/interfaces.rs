//! Links and their addresses: RTM_GETLINK and RTM_GETADDR.

use std::collections::HashMap;
use std::io;
use std::net::IpAddr;

use super::message::{address, attributes, number, text, u32_at};
use super::netlink::Netlink;
use super::routes::Family;

const RTM_GETLINK: u16 = 18;
const RTM_GETADDR: u16 = 22;
/// Length of `struct ifinfomsg`.
const LINK_BYTES: usize = 16;
/// Length of `struct ifaddrmsg`.
const ADDRESS_BYTES: usize = 8;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_LINK: u16 = 5;
const IFLA_QDISC: u16 = 6;
const IFLA_MASTER: u16 = 10;
const IFLA_TXQLEN: u16 = 13;
const IFLA_OPERSTATE: u16 = 16;
const IFLA_LINKINFO: u16 = 18;
const IFLA_STATS64: u16 = 23;
const IFLA_LINK_NETNSID: u16 = 37;
const IFLA_PROP_LIST: u16 = 52;
const IFLA_ALT_IFNAME: u16 = 53;
const IFLA_INFO_KIND: u16 = 1;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;

/// The flags of `struct ifinfomsg`, in the order and with the names of ip(8).
const LINK_FLAGS: [(u32, &str); 18] = [
    (1 << 3, "LOOPBACK"),
    (1 << 1, "BROADCAST"),
    (1 << 4, "POINTOPOINT"),
    (1 << 12, "MULTICAST"),
    (1 << 7, "NOARP"),
    (1 << 9, "ALLMULTI"),
    (1 << 8, "PROMISC"),
    (1 << 10, "MASTER"),
    (1 << 11, "SLAVE"),
    (1 << 2, "DEBUG"),
    (1 << 15, "DYNAMIC"),
    (1 << 14, "AUTOMEDIA"),
    (1 << 13, "PORTSEL"),
    (1 << 5, "NOTRAILERS"),
    (1, "UP"),
    (1 << 16, "LOWER_UP"),
    (1 << 17, "DORMANT"),
    (1 << 18, "ECHO"),
];
const ADDRESS_FLAGS: [(u32, &str); 12] = [
    (0x01, "secondary"),
    (0x02, "nodad"),
    (0x04, "optimistic"),
    (0x08, "dadfailed"),
    (0x10, "home"),
    (0x20, "deprecated"),
    (0x40, "tentative"),
    (0x80, "permanent"),
    (0x100, "mngtmpaddr"),
    (0x200, "noprefixroute"),
    (0x400, "autojoin"),
    (0x800, "stable-privacy"),
];
const STATES: [&str; 7] = [
    "unknown",
    "notpresent",
    "down",
    "lowerlayerdown",
    "testing",
    "dormant",
    "up",
];

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Interface {
    pub index: u32,
    pub name: String,
    pub alternative_names: Vec<String>,
    pub mtu: u32,
    /// The hardware address; empty if there is none.
    pub hardware_address: Vec<u8>,
    /// The kernel's flags (`IFF_*`).
    pub flags: u32,
    pub flag_names: Vec<&'static str>,
    /// The operational state of RFC 2863.
    pub state: &'static str,
    /// The type of a virtual interface.
    pub kind: String,
    /// The index of the interface that this one belongs to.
    pub master: Option<u32>,
    /// The index of the interface below, or of the veth peer.
    pub link: Option<u32>,
    /// True if `link` is in another network namespace.
    pub link_netns: bool,
    pub qdisc: String,
    pub tx_queue_length: u32,
    pub addresses: Vec<Address>,
    pub counters: InterfaceCounters,
}

/// An address of an interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    pub address: IpAddr,
    pub prefix_length: u8,
    /// The other side of a point-to-point link.
    pub peer: Option<IpAddr>,
    pub scope: u8,
    pub flags: Vec<&'static str>,
}

/// The counters of an interface since it was created.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct InterfaceCounters {
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub rx_multicast: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
    pub collisions: u64,
}

/// Returns the network interfaces with their addresses, sorted by index.
pub fn interfaces() -> io::Result<Vec<Interface>> {
    let mut netlink = Netlink::open()?;
    let links = netlink.dump(RTM_GETLINK, &[0; LINK_BYTES])?;
    let addresses = netlink.dump(RTM_GETADDR, &[0; ADDRESS_BYTES])?;
    Ok(parse(
        links.iter().map(Vec::as_slice),
        addresses.iter().map(Vec::as_slice),
    ))
}

pub(super) fn parse<'a>(
    links: impl Iterator<Item = &'a [u8]>,
    addresses: impl Iterator<Item = &'a [u8]>,
) -> Vec<Interface> {
    let mut by_index: HashMap<u32, Vec<Address>> = HashMap::new();
    for (index, address) in addresses.filter_map(one_address) {
        by_index.entry(index).or_default().push(address);
    }
    let mut interfaces: Vec<_> = links.filter_map(one_link).collect();
    for interface in &mut interfaces {
        interface.addresses = by_index.remove(&interface.index).unwrap_or_default();
    }
    interfaces.sort_by_key(|interface| interface.index);
    interfaces
}

fn one_link(body: &[u8]) -> Option<Interface> {
    let flags = u32_at(body, 8)?;
    let mut interface = Interface {
        index: u32_at(body, 4)?,
        flags,
        flag_names: names(&LINK_FLAGS, flags),
        state: STATES[0],
        ..Interface::default()
    };
    for (kind, value) in attributes(body.get(LINK_BYTES..)?) {
        match kind {
            IFLA_ADDRESS => interface.hardware_address = value.to_vec(),
            IFLA_IFNAME => interface.name = text(value),
            IFLA_MTU => interface.mtu = u32_at(value, 0)?,
            IFLA_LINK => interface.link = u32_at(value, 0).filter(|index| *index != 0),
            IFLA_QDISC => interface.qdisc = text(value),
            IFLA_MASTER => interface.master = u32_at(value, 0),
            IFLA_TXQLEN => interface.tx_queue_length = u32_at(value, 0)?,
            IFLA_OPERSTATE => {
                let state = value.first().and_then(|at| STATES.get(usize::from(*at)));
                interface.state = state.unwrap_or(&STATES[0]);
            }
            IFLA_LINKINFO => {
                interface.kind = attributes(value)
                    .find(|(kind, _)| *kind == IFLA_INFO_KIND)
                    .map(|(_, kind)| text(kind))
                    .unwrap_or_default();
            }
            IFLA_STATS64 => interface.counters = counters(value)?,
            IFLA_LINK_NETNSID => interface.link_netns = true,
            IFLA_PROP_LIST => {
                interface.alternative_names = attributes(value)
                    .filter(|(kind, _)| *kind == IFLA_ALT_IFNAME)
                    .map(|(_, name)| text(name))
                    .collect();
            }
            _ => {}
        }
    }
    Some(interface)
}

/// Reads `struct rtnl_link_stats64`.
fn counters(value: &[u8]) -> Option<InterfaceCounters> {
    let at = |position: usize| number(value, position * 8).map(u64::from_ne_bytes);
    Some(InterfaceCounters {
        rx_packets: at(0)?,
        tx_packets: at(1)?,
        rx_bytes: at(2)?,
        tx_bytes: at(3)?,
        rx_errors: at(4)?,
        tx_errors: at(5)?,
        rx_dropped: at(6)?,
        tx_dropped: at(7)?,
        rx_multicast: at(8)?,
        collisions: at(9)?,
    })
}

fn one_address(body: &[u8]) -> Option<(u32, Address)> {
    let [family, prefix_length, flags, scope] = number(body, 0)?;
    let family = Family::from_number(family)?;
    let mut flags = u32::from(flags);
    let (mut local, mut other) = (None, None);
    for (kind, value) in attributes(body.get(ADDRESS_BYTES..)?) {
        match kind {
            IFA_ADDRESS => other = address(value).filter(|address| family.has(*address)),
            IFA_LOCAL => local = address(value).filter(|address| family.has(*address)),
            IFA_FLAGS => flags = u32_at(value, 0)?,
            _ => {}
        }
    }
    // Of an IPv4 address, IFA_ADDRESS is that of the peer, which is the own one without a peer;
    // an IPv6 address has IFA_LOCAL only with a peer.
    let address = local.or(other)?;
    let found = Address {
        address,
        prefix_length,
        peer: other.filter(|other| *other != address),
        scope,
        flags: names(&ADDRESS_FLAGS, flags),
    };
    Some((u32_at(body, 4)?, found))
}

fn names(known: &[(u32, &'static str)], flags: u32) -> Vec<&'static str> {
    let set = known.iter().filter(|(bit, _)| flags & bit != 0);
    set.map(|(_, name)| *name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_interface_is_as_sysfs_shows_it() {
        let found = interfaces().unwrap();
        let loopback = found.iter().find(|one| one.name == "lo").unwrap();
        let sysfs = |file: &str| {
            let text = std::fs::read_to_string(format!("/sys/class/net/lo/{file}")).unwrap();
            text.trim_end().to_owned()
        };
        assert_eq!(loopback.mtu.to_string(), sysfs("mtu"));
        assert_eq!(loopback.index.to_string(), sysfs("ifindex"));
        assert_eq!(loopback.state, sysfs("operstate"));
        assert!(loopback.flag_names.contains(&"LOOPBACK"));
        assert!(found.is_sorted_by_key(|one| one.index));
    }
}
