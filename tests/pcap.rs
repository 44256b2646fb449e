//! Packet captures, in network namespaces of their own.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::Child;

use mainstay_api::common::Data;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{BpfInstruction, PacketCaptureRequest};
use mainstay_capture::{Decoder, Item, LinkType, filter};
use mainstay_identity::Role;
use mainstay_testkit::{TestNetwork, TestNode, soon, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A node on a machine of its own, with nothing but loopback and an Ethernet interface.
struct Machine {
    node: TestNode,
    // Declared last: the namespaces outlive the node.
    _network: TestNetwork,
}

/// Two ends on loopback inside the machine.
struct Flow {
    from: UdpSocket,
    to: UdpSocket,
}

impl Machine {
    fn start() -> Self {
        let network = TestNetwork::of_machines(1);
        Self {
            node: TestNode::builder().on(network.machine(0)).start(),
            _network: network,
        }
    }

    /// Opens sockets inside: a thread may change its own network namespace.
    fn flow(&self) -> Flow {
        let namespace = std::fs::File::open(format!("/proc/{}/ns/net", self.node.pid())).unwrap();
        let open = move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            Flow {
                from: UdpSocket::bind("127.0.0.1:0").unwrap(),
                to: UdpSocket::bind("127.0.0.1:0").unwrap(),
            }
        };
        std::thread::spawn(open).join().unwrap()
    }

    async fn client(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.node.connect_locally().await)
    }

    /// Packet sockets open in the namespace, from the kernel's table with one header line.
    fn packet_sockets(&self) -> usize {
        let table = format!("/proc/{}/net/packet", self.node.pid());
        std::fs::read_to_string(table).unwrap().lines().count() - 1
    }

    fn cli(&self, args: &[&str]) -> Child {
        let socket = format!("unix:{}", self.node.socket().display());
        let args = ["-e", &socket, "pcap"]
            .into_iter()
            .chain(args.iter().copied());
        self.node.cli().spawn(args)
    }

    /// Standard error of a command that exits with this code.
    fn cli_fails(&self, args: &[&str], code: i32) -> String {
        let output = self.cli(args).wait_with_output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        said
    }
}

impl Flow {
    fn port(&self) -> u16 {
        self.to.local_addr().unwrap().port()
    }

    fn send(&self, payload: &[u8]) {
        let to = self.to.local_addr().unwrap();
        self.from.send_to(payload, to).unwrap();
    }
}

fn on_loopback() -> PacketCaptureRequest {
    PacketCaptureRequest {
        interface: "lo".to_owned(),
        ..PacketCaptureRequest::default()
    }
}

fn filtered(text: &str) -> Vec<BpfInstruction> {
    let program = filter::compile(text, LinkType::Ethernet, 65536).unwrap();
    let instruction = |one: mainstay_capture::Instruction| BpfInstruction {
        op: one.op.into(),
        jt: one.jt.into(),
        jf: one.jf.into(),
        k: one.k,
    };
    program.into_iter().map(instruction).collect()
}

/// A capture whose first message has arrived: it captures from then on.
struct Running {
    stream: Streaming<Data>,
    decoder: Decoder,
    magic: Vec<u8>,
}

impl Running {
    async fn start(
        client: &mut MachineServiceClient<Channel>,
        request: PacketCaptureRequest,
    ) -> Result<Self, Status> {
        let mut stream = client.packet_capture(request).await?.into_inner();
        let header = soon("the header", stream.message()).await?.unwrap();
        let mut decoder = Decoder::default();
        decoder.push(&header.bytes);
        match decoder.next_item().unwrap() {
            Some(Item::Interface { link, .. }) => assert_eq!(link, LinkType::Ethernet.number()),
            other => panic!("{other:?}"),
        }
        Ok(Self {
            stream,
            decoder,
            magic: header.bytes[..4].to_vec(),
        })
    }

    /// The next packet, with its length on the wire; and whether drops were reported before it.
    async fn next(&mut self) -> Seen {
        soon("a packet", async {
            loop {
                match self.decoder.next_item().unwrap() {
                    Some(Item::Packet(packet)) => {
                        return Seen::Packet(packet.time, packet.length, packet.data.to_vec());
                    }
                    Some(Item::Statistics(_, counted)) => return Seen::Dropped(counted.dropped),
                    Some(item) => panic!("{item:?}"),
                    None => {
                        let data = self.stream.message().await.unwrap().unwrap();
                        self.decoder.push(&data.bytes);
                    }
                }
            }
        })
        .await
    }

    async fn packet(&mut self) -> (u64, u32, Vec<u8>) {
        match self.next().await {
            Seen::Packet(time, length, data) => (time, length, data),
            Seen::Dropped(dropped) => panic!("{dropped} packets dropped"),
        }
    }
}

#[derive(Debug)]
enum Seen {
    Packet(u64, u32, Vec<u8>),
    Dropped(u64),
}

/// Bytes of the Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 42;

#[tokio::test]
async fn packets_come_as_a_pcap_file_each_once_and_by_the_filter() {
    let machine = Machine::start();
    let (wanted, other) = (machine.flow(), machine.flow());
    let mut client = machine.client().await;
    let request = PacketCaptureRequest {
        bpf_filter: filtered(&format!("udp dst port {}", wanted.port())),
        ..on_loopback()
    };
    let mut capture = Running::start(&mut client, request).await.unwrap();
    assert_eq!(
        capture.magic,
        [0xd4, 0xc3, 0xb2, 0xa1],
        "as talosctl reads it"
    );

    let before = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    other.send(b"not this");
    wanted.send(b"first");
    other.send(b"nor this");
    wanted.send(b"second");
    for payload in [b"first".as_slice(), b"second"] {
        let (time, length, data) = capture.packet().await;
        assert_eq!(&data[HEADERS..], payload);
        assert_eq!(length as usize, HEADERS + payload.len());
        // Microseconds cut the time.
        assert!(time / 1_000_000_000 >= before.as_secs(), "{time}");
    }
}

#[tokio::test]
async fn long_packets_are_cut_at_the_snap_length() {
    let machine = Machine::start();
    let flow = machine.flow();
    let mut client = machine.client().await;
    for program in [Vec::new(), filtered("udp")] {
        let request = PacketCaptureRequest {
            snap_len: 60,
            bpf_filter: program,
            pcapng: true,
            promiscuous: true,
            ..on_loopback()
        };
        let mut capture = Running::start(&mut client, request).await.unwrap();
        flow.send(&[7; 1000]);
        let (_, length, data) = capture.packet().await;
        assert_eq!(length as usize, HEADERS + 1000);
        assert_eq!(data.len(), 60);
    }
}

#[tokio::test]
async fn packets_that_nobody_reads_are_dropped_and_counted() {
    let machine = Machine::start();
    let flow = machine.flow();
    let mut client = machine.client().await;
    let request = PacketCaptureRequest {
        pcapng: true,
        ..on_loopback()
    };
    let mut capture = Running::start(&mut client, request).await.unwrap();
    // More than fits into the buffers of the kernel, the node and the connection together.
    for _ in 0..2000 {
        flow.send(&[7; 60_000]);
    }
    let dropped = loop {
        if let Seen::Dropped(dropped) = capture.next().await {
            break dropped;
        }
    };
    assert!((1..2000).contains(&dropped), "{dropped}");
}

#[tokio::test]
async fn bad_requests_are_refused_with_the_reason() {
    let machine = Machine::start();
    let mut client = machine.client().await;
    let instruction = |op, jt, k| BpfInstruction { op, jt, jf: 0, k };
    let named = |name: &str| PacketCaptureRequest {
        interface: name.to_owned(),
        ..PacketCaptureRequest::default()
    };
    let with = |program: Vec<BpfInstruction>| PacketCaptureRequest {
        bpf_filter: program,
        ..on_loopback()
    };
    let long = "i".repeat(100_000);
    let cases = [
        (named(""), Code::InvalidArgument, "no interface"),
        (
            named("nosuch0"),
            Code::NotFound,
            "interface \"nosuch0\" not found",
        ),
        (named("../lo"), Code::InvalidArgument, "not the name"),
        (named("lo\0"), Code::InvalidArgument, "not the name"),
        (named(&long), Code::InvalidArgument, "not the name"),
        (
            with(vec![instruction(0x06, 0, 1); 5000]),
            Code::InvalidArgument,
            "5000 instructions",
        ),
        (
            with(vec![instruction(0x15, 200, 1)]),
            Code::InvalidArgument,
            "the kernel refuses",
        ),
        (
            with(vec![instruction(0x1_0006, 0, 1)]),
            Code::InvalidArgument,
            "instruction 0",
        ),
        (
            with(vec![instruction(0x06, 256, 1)]),
            Code::InvalidArgument,
            "instruction 0",
        ),
        (
            PacketCaptureRequest {
                snap_len: 300_000,
                ..on_loopback()
            },
            Code::InvalidArgument,
            "the limit is 262144",
        ),
    ];
    for (request, code, text) in cases {
        let status = client.packet_capture(request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(text), "{status}");
        assert!(status.message().len() < 500, "{status}");
    }
    assert_eq!(machine.packet_sockets(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn captures_are_bounded_and_a_cancelled_one_frees_its_socket() {
    let machine = Machine::start();
    let mut client = machine.client().await;
    let mut running = Vec::new();
    for _ in 0..4 {
        let capture = Running::start(&mut client, on_loopback()).await.unwrap();
        running.push(capture);
    }
    assert_eq!(machine.packet_sockets(), 4);
    let status = client.packet_capture(on_loopback()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("already has 4"), "{status}");

    running.pop();
    machine.node.wait_for_log("packet capture ended");
    assert_eq!(machine.packet_sockets(), 3);
    running.push(Running::start(&mut client, on_loopback()).await.unwrap());
}

#[tokio::test]
async fn a_capture_ends_when_its_interface_goes_down() {
    let machine = Machine::start();
    let mut client = machine.client().await;
    let request = PacketCaptureRequest {
        interface: "eth0".to_owned(),
        ..PacketCaptureRequest::default()
    };
    let mut capture = Running::start(&mut client, request.clone()).await.unwrap();
    let set = |state: &str| {
        let mut ip = machine._network.machine(0).command(Path::new("ip"));
        let status = ip.args(["link", "set", "eth0", state]).status().unwrap();
        assert!(status.success());
    };
    set("down");
    let ended = soon("the end", async {
        loop {
            // Packets of the kernel's own may come before.
            match capture.stream.message().await {
                Ok(Some(_)) => {}
                Ok(None) => panic!("it ended without a reason"),
                Err(status) => break status,
            }
        }
    })
    .await;
    assert_eq!(ended.code(), Code::Unavailable, "{ended}");
    let refused = client.packet_capture(request).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused}");
    assert!(refused.message().contains("is down"), "{refused}");
}

#[tokio::test]
async fn only_administrators_capture_packets() {
    let node = TestNode::start();
    for role in [Role::Reader, Role::Operator] {
        let credentials = node.credentials("somebody", &[role]);
        let mut client = MachineServiceClient::new(node.connect_as(&credentials).await);
        // No such interface, so that nothing is captured on this machine if it were allowed.
        let request = PacketCaptureRequest {
            interface: "nosuch0".to_owned(),
            ..PacketCaptureRequest::default()
        };
        let status = client.packet_capture(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    }
}

/// Sends until the command exits: how soon it captures is not known here.
fn send_until_exit(flow: &Flow, child: &mut Child, payload: &[u8]) {
    let began = std::time::Instant::now();
    while child.try_wait().unwrap().is_none() {
        flow.send(payload);
        assert!(
            began.elapsed() < mainstay_testkit::WAIT_TIMEOUT,
            "it does not end"
        );
        std::thread::yield_now();
    }
}

fn decoded(bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut decoder = Decoder::default();
    decoder.push(bytes);
    let mut packets = Vec::new();
    while let Some(item) = decoder.next_item().unwrap() {
        if let Item::Packet(packet) = item {
            packets.push(packet.data.to_vec());
        }
    }
    packets
}

#[test]
fn the_command_writes_pcapng_to_a_file_and_to_stdout() {
    let machine = Machine::start();
    let flow = machine.flow();
    let filter = format!("udp and dst port {}", flow.port());
    let file = machine.node.scratch().join("lo.pcapng");
    let path = file.to_str().unwrap();

    let args = ["-i", "lo", "--count", "2", "-w", path, "--", &filter];
    let mut child = machine.cli(&args);
    send_until_exit(&flow, &mut child, b"to a file");
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("2 packets captured, 0 dropped"), "{said}");
    assert!(output.stdout.is_empty());
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes[..4], [0x0a, 0x0d, 0x0d, 0x0a], "pcapng");
    let packets = decoded(&bytes);
    assert_eq!(packets.len(), 2);
    assert_eq!(&packets[1][HEADERS..], b"to a file");

    let program = "{ 0x28, 0, 0, 0x0000000c },\n{ 0x15, 0, 1, 0x00000800 },\n\
                   { 0x6, 0, 0, 0x00010000 },\n{ 0x6, 0, 0, 0x00000000 },";
    let mut child = machine.cli(&["-i", "lo", "-c", "1", "--bpf", program]);
    send_until_exit(&flow, &mut child, b"to stdout");
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    assert_eq!(&decoded(&output.stdout)[0][HEADERS..], b"to stdout");
}

#[test]
fn the_command_ends_on_time_and_on_an_interrupt_with_a_whole_file() {
    let machine = Machine::start();
    let mut child = machine.cli(&["-i", "lo", "--duration", "1ms"]);
    assert!(wait_for_exit(&mut child).success());

    let mut child = machine.cli(&["-i", "lo"]);
    // Its header says that it captures, and so that it handles the signal.
    let mut header = [0; 4];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut header).unwrap();
    let pid = Pid::from_raw(child.id().cast_signed()).unwrap();
    kill_process(pid, Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("packets captured"), "{said}");
}

#[test]
fn the_command_explains_what_it_cannot_do() {
    let machine = Machine::start();
    let file = machine.node.scratch().join("never.pcapng");
    let path = file.to_str().unwrap();
    let fails = |args: &[&str], code, text: &str| {
        let said = machine.cli_fails(args, code);
        assert!(said.contains(text), "{args:?}: {said}");
    };
    fails(&["-i", "nosuch0", "-w", path], 6, "\"nosuch0\" not found");
    assert!(!file.exists(), "no file for a capture that never was");
    fails(&["-i", "lo", "--", "tcp", "prot", "80"], 2, "\"prot\"");
    fails(&["-i", "lo", "--", "vlan 5"], 2, "tcpdump -dd");
    fails(&["-i", "lo", "--bpf", "tcp"], 2, "line 1");
    fails(&["-i", "lo", "-o", "json"], 2, "pcapng");
    fails(
        &["-i", "lo", "--link-type", "raw", "--", "tcp"],
        2,
        "--link-type ethernet",
    );
    fails(&["-n", "a,b", "-i", "lo"], 2, "one node");
    fails(
        &["-i", "lo", "-w", "/nonexistent/x"],
        1,
        "cannot write /nonexistent/x",
    );
    fails(&["-i", "lo", "--snaplen", "0"], 2, "--snaplen");
    fails(&["-i", "lo", "--count", "0"], 2, "--count");
}
