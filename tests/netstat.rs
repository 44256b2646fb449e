//! `Netstat` and `mainstay netstat`.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mainstay_api::machine::connect_record::State;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::netstat_request::{Feature, Filter, L4proto, NetNs};
use mainstay_api::machine::{ConnectRecord, NetstatRequest};
use mainstay_testkit::{NamespaceHolder, PrivateMounts, TestNode, require, soon};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tonic::{Code, Status};

async fn netstat(node: &TestNode, request: NetstatRequest) -> Result<Vec<ConnectRecord>, Status> {
    let mut machine = MachineServiceClient::new(node.connect().await);
    let mut answer = soon("the sockets", machine.netstat(request))
        .await?
        .into_inner();
    assert_eq!(answer.messages.len(), 1);
    assert!(answer.messages[0].metadata.is_none());
    Ok(answer.messages.remove(0).connectrecord)
}

fn with_pids(filter: Filter) -> NetstatRequest {
    NetstatRequest {
        filter: filter.into(),
        feature: Some(Feature { pid: true }),
        ..NetstatRequest::default()
    }
}

fn find(all: &[ConnectRecord], local: SocketAddr, remote: Option<SocketAddr>) -> &ConnectRecord {
    let at = |ip: &str, port: u32, address: SocketAddr| {
        ip == address.ip().to_string() && port == u32::from(address.port())
    };
    all.iter()
        .find(|record| {
            at(&record.localip, record.localport, local)
                && remote.is_none_or(|remote| at(&record.remoteip, record.remoteport, remote))
        })
        .unwrap_or_else(|| panic!("{local} to {remote:?} is not there"))
}

#[tokio::test]
async fn listeners_and_connections_have_their_addresses_states_and_owners() {
    let node = TestNode::start();
    for (any, protocol) in [("127.0.0.1:0", "tcp"), ("[::1]:0", "tcp6")] {
        let listener = TcpListener::bind(any).unwrap();
        let local = listener.local_addr().unwrap();
        let client = TcpStream::connect(local).unwrap();
        let (_accepted, peer) = listener.accept().unwrap();
        let own = std::process::id();

        let listening = netstat(&node, with_pids(Filter::Listening)).await.unwrap();
        let record = find(&listening, local, None);
        assert_eq!(record.l4proto, protocol);
        assert_eq!(record.state(), State::Listen);
        assert_eq!(record.remoteport, 0);
        assert_eq!(record.process.as_ref().unwrap().pid, own);
        let comm = std::fs::read_to_string("/proc/self/comm").unwrap();
        assert_eq!(record.process.as_ref().unwrap().name, comm.trim_end());
        assert_eq!(record.uid, rustix::process::geteuid().as_raw());
        assert_eq!(record.netns, "");
        let fd = std::os::fd::OwnedFd::from(listener);
        let inode = std::fs::File::from(fd).metadata().unwrap().ino();
        assert_eq!(record.inode, inode);

        let connected = netstat(&node, with_pids(Filter::Connected)).await.unwrap();
        for (from, to) in [(peer, local), (local, peer)] {
            let record = find(&connected, from, Some(to));
            assert_eq!(record.state(), State::Established);
            assert_eq!(record.process.as_ref().unwrap().pid, own);
        }
        let of_daemon = find(&listening, node.listen(), None);
        assert_eq!(of_daemon.process.as_ref().unwrap().pid, node.pid());
        assert!(
            !connected
                .iter()
                .any(|record| record.state() == State::Listen),
            "the filter holds"
        );
        drop(client);
    }
}

#[tokio::test]
async fn queue_lengths_are_in_bytes() {
    use std::io::Write;
    let node = TestNode::start();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let local = listener.local_addr().unwrap();
    let mut client = TcpStream::connect(local).unwrap();
    let (_accepted, peer) = listener.accept().unwrap();
    client.write_all(&[7; 1234]).unwrap();
    let all = netstat(&node, NetstatRequest::default()).await.unwrap();
    let record = find(&all, local, Some(peer));
    assert_eq!((record.rxqueue, record.txqueue), (1234, 0));
    assert!(record.process.is_none(), "nobody asked whose it is");
}

#[tokio::test]
async fn protocols_are_chosen_and_datagram_sockets_have_a_peer_or_none() {
    let node = TestNode::start();
    let waiting = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sending = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (to, from) = (waiting.local_addr().unwrap(), sending.local_addr().unwrap());
    sending.connect(to).unwrap();
    let ask = |filter: Filter| NetstatRequest {
        filter: filter.into(),
        l4proto: Some(L4proto {
            udp: true,
            ..L4proto::default()
        }),
        ..NetstatRequest::default()
    };
    let listening = netstat(&node, ask(Filter::Listening)).await.unwrap();
    assert_eq!(find(&listening, to, None).state(), State::Close);
    let connected = netstat(&node, ask(Filter::Connected)).await.unwrap();
    let record = find(&connected, from, Some(to));
    assert_eq!(record.state(), State::Established);
    let all = netstat(&node, ask(Filter::All)).await.unwrap();
    assert!(all.iter().all(|record| record.l4proto == "udp"));
}

/// A network namespace, as long as a process is in it.
struct Network(NamespaceHolder);

impl Network {
    fn unnamed() -> Self {
        Self(NamespaceHolder::unshare(&["--net"], "true", &[]))
    }

    fn number(&self) -> u64 {
        self.file().metadata().unwrap().ino()
    }

    fn file(&self) -> std::fs::File {
        std::fs::File::open(format!("/proc/{}/ns/net", self.0.pid())).unwrap()
    }

    /// A listener of this process in there.
    fn listen(&self) -> TcpListener {
        let file = self.file();
        let thread = std::thread::spawn(move || {
            let kind = Some(LinkNameSpaceType::Network);
            move_into_link_name_space(std::os::fd::AsFd::as_fd(&file), kind).unwrap();
            TcpListener::bind("0.0.0.0:0").unwrap()
        });
        thread.join().unwrap()
    }
}

fn in_networks(netns: NetNs) -> NetstatRequest {
    NetstatRequest {
        netns: Some(netns),
        ..with_pids(Filter::Listening)
    }
}

#[tokio::test]
async fn another_network_namespace_is_read_by_its_number_or_with_all_others() {
    require!(Root);
    let node = TestNode::start();
    let network = Network::unnamed();
    let listener = network.listen();
    let there = listener.local_addr().unwrap();
    let name = format!("net:[{}]", network.number());

    let one = NetNs {
        netns: vec![name.clone(), name.clone()],
        ..NetNs::default()
    };
    let all = netstat(&node, in_networks(one)).await.unwrap();
    assert_eq!(all.len(), 1, "once, and nothing of other networks: {all:?}");
    let record = find(&all, there, None);
    assert_eq!(record.netns, name);
    assert_eq!(record.process.as_ref().unwrap().pid, std::process::id());

    let every = NetNs {
        allnetns: true,
        ..NetNs::default()
    };
    let all = netstat(&node, in_networks(every)).await.unwrap();
    let of = |netns: &str| -> Vec<ConnectRecord> {
        let records = all.iter().filter(|record| record.netns == netns);
        records.cloned().collect()
    };
    find(&of(&name), there, None);
    find(&of(""), node.listen(), None);

    let own = netstat(&node, with_pids(Filter::Listening)).await.unwrap();
    assert!(own.iter().all(|record| record.netns.is_empty()));
}

#[tokio::test]
async fn a_named_network_namespace_is_read_by_its_name() {
    require!(Root);
    // Nobody else ever sees the name: what is below /run is ours alone.
    let mounts = PrivateMounts::tmpfs(Path::new("/run"), 1024);
    let node = TestNode::builder().inside(mounts.namespace()).start();
    let mut command = mounts.namespace().command(Path::new("unshare"));
    command.args(["--net", "sh", "-c"]).arg(
        "mkdir /run/netns && touch /run/netns/blue /run/netns/left-behind \
         && mkfifo /run/netns/fifo \
         && mount --bind /proc/self/ns/net /run/netns/blue && echo ready && exec cat",
    );
    let network = Network(NamespaceHolder::spawn(command));
    let listener = network.listen();
    let there = listener.local_addr().unwrap();
    // It has its name even when no process is in it.
    drop(network);

    let ask = |name: &str| {
        in_networks(NetNs {
            hostnetwork: true,
            netns: vec![name.to_owned()],
            allnetns: false,
        })
    };
    let all = netstat(&node, ask("blue")).await.unwrap();
    assert_eq!(find(&all, there, None).netns, "blue");
    assert_eq!(find(&all, node.listen(), None).netns, "");
    for left in ["left-behind", "fifo"] {
        let status = netstat(&node, ask(left)).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    }
    let every = NetNs {
        allnetns: true,
        ..NetNs::default()
    };
    let all = netstat(&node, in_networks(every)).await.unwrap();
    assert_eq!(find(&all, there, None).netns, "blue");
    assert_eq!(find(&all, node.listen(), None).netns, "");
}

#[tokio::test]
async fn bad_questions_are_refused() {
    let node = TestNode::start();
    let named = |names: Vec<String>| {
        in_networks(NetNs {
            netns: names,
            ..NetNs::default()
        })
    };
    let one = |name: &str| named(vec![name.to_owned()]);
    for (request, code) in [
        (
            NetstatRequest {
                filter: 77,
                ..NetstatRequest::default()
            },
            Code::InvalidArgument,
        ),
        (one("../../proc/1/ns/net"), Code::InvalidArgument),
        (one(""), Code::InvalidArgument),
        (one(".."), Code::InvalidArgument),
        (one("a\0b"), Code::InvalidArgument),
        (one(&"x".repeat(1 << 20)), Code::InvalidArgument),
        (named(vec!["x".to_owned(); 5000]), Code::InvalidArgument),
        (one("no-such-namespace"), Code::NotFound),
        (one("net:[1]"), Code::NotFound),
        (one("net:[99999999999999999999999]"), Code::NotFound),
    ] {
        let status = netstat(&node, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().len() < 1000);
    }
}

#[test]
fn the_command_shows_what_was_asked_for() {
    let node = TestNode::start();
    let listener = TcpListener::bind("[::1]:0").unwrap();
    let local = listener.local_addr().unwrap();
    let client = TcpStream::connect(local).unwrap();
    let peer = client.local_addr().unwrap();
    let row = |table: &str, local: SocketAddr| -> Vec<String> {
        table
            .lines()
            .find(|line| line.split_whitespace().nth(3) == Some(&local.to_string()))
            .map(|line| line.split_whitespace().map(str::to_owned).collect())
            .unwrap_or_else(|| panic!("{local} is not in\n{table}"))
    };
    let listening = node.cli().run(["netstat", "-tlp"]).ok();
    let shown = row(&listening, local);
    assert_eq!(shown[0], "tcp6");
    assert_eq!(&shown[4..6], ["[::]:*", "LISTEN"]);
    assert!(shown[6].starts_with(&format!("{}/", std::process::id())));
    let of_daemon = row(&listening, node.listen());
    assert_eq!(of_daemon[6], format!("{}/mainstay", node.pid()));

    let connected = node.cli().run(["ss", "-t6x", "--timers"]).ok();
    let shown = row(&connected, peer);
    assert_eq!(&shown[4..6], [local.to_string().as_str(), "ESTABLISHED"]);
    assert!(!connected.contains("LISTEN") && !connected.contains("\ntcp "));
    assert!(connected.lines().next().unwrap().contains("INODE"));

    let json = node.cli().run(["netstat", "-a", "-o", "json"]).json();
    let records = json[0]["connectrecord"].as_array().unwrap();
    assert!(
        records
            .iter()
            .any(|record| { record["localport"] == local.port() && record["state"] == "LISTEN" })
    );
    let missing = node.cli().run(["netstat", "--netns", "no-such"]).failed(6);
    assert!(missing.contains("no-such"), "{missing}");
    node.cli().run(["netstat", "-la"]).failed(2);
    drop(client);
}
