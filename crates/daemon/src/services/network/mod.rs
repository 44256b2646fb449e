//! `network.NetworkService`: interfaces and routes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::net::IpAddr;

use mainstay_api::envelope;
use mainstay_api::network::network_service_server::NetworkService;
use mainstay_api::network::{
    Address as WireAddress, AddressFamily, Interface as WireInterface,
    InterfaceCounters as WireCounters, InterfaceFlags, Interfaces, InterfacesResponse,
    NextHop as WireNextHop, Route as WireRoute, Routes, RoutesResponse,
};
use mainstay_node::network::{self, Address, Family, Interface, Route};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status};

use crate::rpc::{fitting, reading_in_turn};

/// The five flags that original clients know, with the kernel's bits.
const FLAGS: [(u32, InterfaceFlags); 5] = [
    (1, InterfaceFlags::FlagUp),
    (1 << 1, InterfaceFlags::FlagBroadcast),
    (1 << 3, InterfaceFlags::FlagLoopback),
    (1 << 4, InterfaceFlags::FlagPointToPoint),
    (1 << 12, InterfaceFlags::FlagMulticast),
];

/// Reads of interfaces or routes at once. A router may have hundreds of thousands of routes; the
/// calls that wait hold no memory yet.
static DUMPS: Semaphore = Semaphore::const_new(2);

#[derive(Debug)]
pub(super) struct Network;

#[tonic::async_trait]
impl NetworkService for Network {
    async fn interfaces(&self, _: Request<()>) -> Result<Response<InterfacesResponse>, Status> {
        let answer = reading_in_turn("the network interfaces", &DUMPS, || {
            let found = network::interfaces().map_err(|error| failed("interfaces", &error))?;
            let names: HashMap<u32, String> = found
                .iter()
                .map(|interface| (interface.index, interface.name.clone()))
                .collect();
            let found = found.into_iter();
            let answer = Interfaces {
                metadata: None,
                interfaces: found.map(|one| interface(one, &names)).collect(),
            };
            fitting(answer, "network interfaces")
        });
        Ok(Response::new(envelope(answer.await?)))
    }

    async fn routes(&self, _: Request<()>) -> Result<Response<RoutesResponse>, Status> {
        let answer = reading_in_turn("the routes", &DUMPS, || {
            let found = network::routes().map_err(|error| failed("routes", &error))?;
            let answer = Routes {
                metadata: None,
                routes: found.into_iter().map(route).collect(),
            };
            fitting(answer, "routes")
        });
        Ok(Response::new(envelope(answer.await?)))
    }
}

fn failed(what: &str, error: &std::io::Error) -> Status {
    let message = format!("cannot read the {what}: {error}");
    match error.kind() {
        std::io::ErrorKind::FileTooLarge => Status::resource_exhausted(message),
        _ => Status::internal(message),
    }
}

fn interface(interface: Interface, names: &HashMap<u32, String>) -> WireInterface {
    let mut set = FLAGS.iter().filter(|(bit, _)| interface.flags & bit != 0);
    let flag = match (set.next(), set.next()) {
        (Some((_, only)), None) => *only,
        _ => InterfaceFlags::FlagUnknown,
    };
    let counters = interface.counters;
    let master = interface.master;
    WireInterface {
        index: interface.index,
        mtu: interface.mtu,
        name: interface.name,
        hardwareaddr: hardware_address(&interface.hardware_address),
        flags: flag.into(),
        ipaddress: interface
            .addresses
            .iter()
            .map(|one| prefix((one.address, one.prefix_length)))
            .collect(),
        state: interface.state.to_owned(),
        kind: interface.kind,
        master: master
            .map(|index| names.get(&index).cloned().unwrap_or_default())
            .unwrap_or_default(),
        link: interface.link.unwrap_or(0),
        link_netns: interface.link_netns,
        flag_names: interface
            .flag_names
            .into_iter()
            .map(str::to_owned)
            .collect(),
        addresses: interface.addresses.into_iter().map(address).collect(),
        counters: Some(WireCounters {
            rx_bytes: counters.rx_bytes,
            rx_packets: counters.rx_packets,
            rx_errors: counters.rx_errors,
            rx_dropped: counters.rx_dropped,
            rx_multicast: counters.rx_multicast,
            tx_bytes: counters.tx_bytes,
            tx_packets: counters.tx_packets,
            tx_errors: counters.tx_errors,
            tx_dropped: counters.tx_dropped,
            collisions: counters.collisions,
        }),
        qdisc: interface.qdisc,
        tx_queue_length: interface.tx_queue_length,
        alternative_names: interface.alternative_names,
    }
}

fn address(address: Address) -> WireAddress {
    let family = match address.address {
        IpAddr::V4(_) => AddressFamily::AfInet,
        IpAddr::V6(_) => AddressFamily::AfInet6,
    };
    WireAddress {
        family: family.into(),
        address: address.address.to_string(),
        prefix_length: address.prefix_length.into(),
        peer: optional(address.peer),
        scope: scope(address.scope),
        flags: address.flags.into_iter().map(str::to_owned).collect(),
    }
}

fn route(route: Route) -> WireRoute {
    let family = match route.family {
        Family::V4 => AddressFamily::AfInet,
        Family::V6 => AddressFamily::AfInet6,
    };
    let next_hops = route.next_hops.into_iter();
    WireRoute {
        interface: route.interface,
        destination: prefix(route.destination),
        gateway: optional(route.gateway),
        metric: route.metric,
        scope: route.scope.into(),
        source: optional(route.preferred_source),
        family: family.into(),
        protocol: route.protocol.into(),
        flags: route.flags,
        table: route.table,
        r#type: route.kind,
        next_hops: next_hops
            .map(|hop| WireNextHop {
                interface: hop.interface,
                gateway: optional(hop.gateway),
                weight: hop.weight,
            })
            .collect(),
        from: route.from.map(prefix).unwrap_or_default(),
        protocol_name: network::protocol_name(route.protocol),
    }
}

fn prefix((address, length): (IpAddr, u8)) -> String {
    format!("{address}/{length}")
}

fn optional(address: Option<IpAddr>) -> String {
    address.map_or_else(String::new, |address| address.to_string())
}

fn scope(scope: u8) -> String {
    let name = match scope {
        0 => "global",
        200 => "site",
        253 => "link",
        254 => "host",
        255 => "nowhere",
        other => return other.to_string(),
    };
    name.to_owned()
}

/// `52:54:00:12:34:56`
fn hardware_address(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 3);
    for byte in bytes {
        if !text.is_empty() {
            text.push(':');
        }
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
