//! `Interfaces`, `Routes` and their commands, against ip(8) in a network namespace of their own.

use std::path::Path;

use mainstay_api::network::network_service_client::NetworkServiceClient;
use mainstay_api::network::{Interface, InterfaceFlags, Route};
use mainstay_identity::Role;
use mainstay_testkit::{TestFleet, TestNetwork, TestNode, require, soon, to_nodes};
use serde_json::{Value, json};
use tonic::transport::Channel;

/// Reads of the kernel between which nothing may change; the kernel configures IPv6 by itself.
const MAX_READS: usize = 500;

/// A machine with links, addresses and routes of many kinds.
fn machine() -> (TestNetwork, TestNode) {
    let network = TestNetwork::of_machines(1);
    for arguments in [
        "link add link7 type veth peer name peer7",
        "link set link7 mtu 1400 address 02:00:00:00:00:07",
        "link property add dev link7 altname uplink-of-the-test",
        "address add 10.9.0.5/24 dev link7",
        "address add 10.9.1.1 peer 10.9.1.2/32 dev link7",
        "address add 2001:db8::5/64 dev link7 nodad",
        "link set link7 up",
        "link set peer7 up",
        "link add bridge7 type bridge",
        "link add port7 type veth peer name port8",
        "link set port7 master bridge7",
        "route add 10.8.0.0/16 via 10.9.0.1 metric 77",
        "route add default via 10.9.0.1 dev link7 proto static",
        "route add blackhole 10.7.0.0/24 table 1000",
        "route add 10.6.0.0/24 nexthop via 10.9.0.1 weight 3 nexthop via 10.77.0.9",
        "-6 route add 2001:db8:1::/48 via 2001:db8::1 metric 12 proto 199",
        "-6 route add default via 2001:db8::1",
    ] {
        ip(&network, arguments);
    }
    let node = TestNode::builder().on(network.machine(0)).start();
    (network, node)
}

fn ip(network: &TestNetwork, arguments: &str) -> String {
    let mut ip = network.machine(0).command(Path::new("ip"));
    let output = ip.args(arguments.split(' ')).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {arguments}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn ip_json(network: &TestNetwork, arguments: &str) -> Vec<Value> {
    let text = ip(network, arguments);
    serde_json::from_str::<Vec<Value>>(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

async fn client(node: &TestNode) -> NetworkServiceClient<Channel> {
    NetworkServiceClient::new(node.connect_locally().await)
}

async fn interfaces(node: &TestNode) -> Vec<Interface> {
    let mut client = client(node).await;
    let answer = soon("the interfaces", client.interfaces(())).await;
    let mut messages = answer.unwrap().into_inner().messages;
    assert_eq!(messages.len(), 1);
    assert!(messages[0].metadata.is_none());
    messages.remove(0).interfaces
}

async fn routes(node: &TestNode) -> Vec<Route> {
    let mut client = client(node).await;
    let answer = soon("the routes", client.routes(())).await;
    answer.unwrap().into_inner().messages.remove(0).routes
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

/// An interface of ip(8), in our terms.
fn link_of_ip(link: &Value) -> Value {
    let mut flags: Vec<String> = link["flags"].as_array().unwrap().iter().map(text).collect();
    // ip(8) makes these up: it has no carrier, its peer is down.
    flags.retain(|flag| flag != "NO-CARRIER" && flag != "M-DOWN");
    let addresses: Vec<Value> = link["addr_info"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| {
            json!({
                "address": one["local"], "prefix": one["prefixlen"], "scope": one["scope"],
                "peer": text(&one["address"]),
            })
        })
        .collect();
    let (rx, tx) = (&link["stats64"]["rx"], &link["stats64"]["tx"]);
    let named = link["altnames"].as_array().cloned().unwrap_or_default();
    json!({
        "index": link["ifindex"], "name": link["ifname"], "mtu": link["mtu"],
        "mac": text(&link["address"]), "state": text(&link["operstate"]).to_lowercase(),
        "flags": flags, "addresses": addresses, "qdisc": link["qdisc"],
        "kind": text(&link["linkinfo"]["info_kind"]), "master": text(&link["master"]),
        "altnames": named,
        "rx": [rx["bytes"], rx["packets"], rx["errors"], rx["dropped"], rx["multicast"]],
        "tx": [tx["bytes"], tx["packets"], tx["errors"], tx["dropped"], tx["collisions"]],
    })
}

fn link_of_node(link: &Interface) -> Value {
    let addresses: Vec<Value> = link
        .addresses
        .iter()
        .map(|one| {
            json!({
                "address": one.address, "prefix": one.prefix_length, "scope": one.scope,
                "peer": one.peer,
            })
        })
        .collect();
    let counters = link.counters.unwrap();
    json!({
        "index": link.index, "name": link.name, "mtu": link.mtu, "mac": link.hardwareaddr,
        "state": link.state, "flags": link.flag_names, "addresses": addresses,
        "qdisc": link.qdisc, "kind": link.kind, "master": link.master,
        "altnames": link.alternative_names,
        "rx": [counters.rx_bytes, counters.rx_packets, counters.rx_errors, counters.rx_dropped,
               counters.rx_multicast],
        "tx": [counters.tx_bytes, counters.tx_packets, counters.tx_errors, counters.tx_dropped,
               counters.collisions],
    })
}

#[tokio::test]
async fn interfaces_are_those_of_ip() {
    require!(Network);
    let (network, node) = machine();
    let read = || -> Vec<Value> {
        let links = ip_json(&network, "-j -d -s address show");
        links.iter().map(link_of_ip).collect()
    };
    for _ in 0..MAX_READS {
        let before = read();
        let found = interfaces(&node).await;
        if before != read() {
            continue;
        }
        let shown: Vec<Value> = found.iter().map(link_of_node).collect();
        for (shown, wanted) in shown.iter().zip(&before) {
            assert_eq!(shown, wanted);
        }
        assert_eq!(shown.len(), before.len());
        let link = found.iter().find(|one| one.name == "link7").unwrap();
        assert_eq!(link.kind, "veth");
        let wanted = ["10.9.0.5/24", "10.9.1.1/32", "2001:db8::5/64"];
        for address in wanted {
            assert!(link.ipaddress.iter().any(|one| one == address), "{link:?}");
        }
        let loopback = found.iter().find(|link| link.name == "lo").unwrap();
        // Up and loopback are two flags; the enum holds one.
        assert_eq!(loopback.flags(), InterfaceFlags::FlagUnknown);
        let eth0 = found.iter().find(|link| link.name == "eth0").unwrap();
        assert!(eth0.link > 0 && eth0.link_netns, "{eth0:?}");
        return;
    }
    panic!("the interfaces never stopped changing");
}

/// A route of ip(8), in our terms.
fn route_of_ip(route: &Value, any: &str, host: u8) -> Value {
    let destination = match text(&route["dst"]).as_str() {
        "default" => format!("{any}/0"),
        prefix if prefix.contains('/') => prefix.to_owned(),
        address => format!("{address}/{host}"),
    };
    let or = |value: &Value, otherwise: &str| match text(value).as_str() {
        "" => otherwise.to_owned(),
        text => text.to_owned(),
    };
    let hops: Vec<Value> = route["nexthops"]
        .as_array()
        .map(|hops| {
            hops.iter()
                .map(|hop| json!([text(&hop["gateway"]), text(&hop["dev"]), hop["weight"]]))
                .collect()
        })
        .unwrap_or_default();
    let first = route["nexthops"].get(0).unwrap_or(route);
    json!({
        "destination": destination, "gateway": text(&first["gateway"]), "dev": text(&first["dev"]),
        "metric": route["metric"].as_u64().unwrap_or(0), "protocol": or(&route["protocol"], "boot"),
        "type": or(&route["type"], "unicast"), "table": or(&route["table"], "main"),
        "source": text(&route["prefsrc"]), "hops": hops,
    })
}

fn route_of_node(route: &Route) -> Value {
    let table = match route.table {
        254 => "main".to_owned(),
        255 => "local".to_owned(),
        number => number.to_string(),
    };
    let hops: Vec<Value> = route
        .next_hops
        .iter()
        .map(|hop| json!([hop.gateway, hop.interface, hop.weight]))
        .collect();
    json!({
        "destination": route.destination, "gateway": route.gateway, "dev": route.interface,
        "metric": route.metric, "protocol": route.protocol_name, "type": route.r#type,
        "table": table, "source": route.source, "hops": hops,
    })
}

fn in_order(mut routes: Vec<Value>) -> Vec<String> {
    let mut texts: Vec<String> = routes.drain(..).map(|route| route.to_string()).collect();
    texts.sort();
    texts
}

#[tokio::test]
async fn routes_are_those_of_ip_in_all_tables() {
    require!(Network);
    let (network, node) = machine();
    let read = || {
        let v4 = ip_json(&network, "-4 -j route show table all");
        let v6 = ip_json(&network, "-6 -j route show table all");
        let v4 = v4.iter().map(|route| route_of_ip(route, "0.0.0.0", 32));
        let v6 = v6.iter().map(|route| route_of_ip(route, "::", 128));
        in_order(v4.chain(v6).collect())
    };
    for _ in 0..MAX_READS {
        let before = read();
        let found = routes(&node).await;
        if before != read() {
            continue;
        }
        let shown = in_order(found.iter().map(route_of_node).collect());
        assert_eq!(shown, before);
        let of = |destination: &str| {
            let route = found.iter().find(|one| one.destination == destination);
            route.unwrap_or_else(|| panic!("no route to {destination}"))
        };
        assert_eq!(of("10.8.0.0/16").metric, 77);
        assert_eq!(of("10.7.0.0/24").table, 1000);
        assert_eq!(of("10.6.0.0/24").next_hops[0].weight, 3);
        assert_eq!(of("2001:db8:1::/48").protocol_name, "199");
        return;
    }
    panic!("the routes never stopped changing");
}

#[test]
fn the_commands_filter_and_print_json_and_yaml() {
    require!(Network);
    let (_network, node) = machine();
    let socket = format!("unix:{}", node.socket().display());
    let run = |args: &[&str]| node.cli().run(args.iter().chain(&["-e", &socket])).ok();
    let row = |table: &str, name: &str| -> Vec<String> {
        let mut lines = table.lines();
        let line = lines.find(|line| line.split_whitespace().any(|word| word == name));
        let line = line.unwrap_or_else(|| panic!("{name} is not in\n{table}"));
        line.split_whitespace().map(str::to_owned).collect()
    };
    let links = run(&["interfaces"]);
    let shown = row(&links, "link7");
    assert!(shown.contains(&"1400".to_owned()) && shown.contains(&"10.9.0.5/24".to_owned()));
    assert!(shown.contains(&"02:00:00:00:00:07".to_owned()));
    assert!(run(&["interfaces", "-s"]).contains("RX PACKETS"));
    assert!(!run(&["interfaces", "--up"]).contains("port7"));

    let v4 = run(&["routes", "-4"]);
    assert!(v4.contains("10.8.0.0/16") && !v4.contains("2001:db8"));
    assert!(!v4.contains(" local "), "{v4}");
    assert!(run(&["routes", "--all"]).contains(" local "));
    let shown = row(&v4, "10.8.0.0/16");
    let wanted = ["10.8.0.0/16", "10.9.0.1", "link7", "77", "boot"];
    assert!(shown.windows(5).any(|words| words == wanted), "{v4}");
    let one = run(&["routes", "--table", "1000"]);
    assert_eq!(one.lines().count(), 2, "{one}");
    assert!(one.contains("blackhole"));
    let two_hops = run(&["routes", "--table", "main", "-4"]);
    assert_eq!(two_hops.matches("10.6.0.0/24").count(), 2, "{two_hops}");

    let json: Value = serde_json::from_str(&run(&["routes", "-6", "-o", "json"])).unwrap();
    let all = json[0]["routes"].as_array().unwrap();
    assert!(all.iter().any(|route| route["destination"] == "::/0"));
    assert!(run(&["interfaces", "-o", "yaml"]).contains("name: link7"));
    for (args, word) in [
        (&["routes", "--table", "mine"][..], "main"),
        (&["routes", "-4", "-6"], "--ipv6"),
        (&["routes", "--all", "--table", "main"], "--all"),
    ] {
        let said = node.cli().run(args).failed(2);
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn every_node_answers_and_a_reader_may_ask() {
    let fleet = TestFleet::start(2);
    let reader = fleet.nodes[0].credentials("reader", &[Role::Reader]);
    let mut client = NetworkServiceClient::new(fleet.nodes[0].connect_as(&reader).await);
    let reply = client.interfaces(to_nodes((), fleet.names())).await;
    let messages = reply.unwrap().into_inner().messages;
    assert_eq!(messages.len(), 2);
    for message in messages {
        assert!(fleet.names().contains(&message.metadata.unwrap().hostname));
        assert!(message.interfaces.iter().any(|link| link.name == "lo"));
    }
    let reply = client.routes(to_nodes((), fleet.names())).await.unwrap();
    assert_eq!(reply.into_inner().messages.len(), 2);
}
