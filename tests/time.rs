//! `Time`, `TimeCheck` and `mainstay time`, against an NTP server of the test.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use mainstay_api::time::time_service_client::TimeServiceClient;
use mainstay_api::time::{Time, TimeRequest};
use mainstay_identity::Role;
use mainstay_testkit::{TestFleet, TestNode, soon, to_nodes};
use tonic::{Code, Status};

/// Seconds from 1900 to 1970.
const EPOCH: u64 = 2_208_988_800;
const PACKET_BYTES: usize = 48;

type Answer = [u8; PACKET_BYTES];

/// An NTP server on loopback whose clock is ahead by some seconds; stops when it is dropped.
struct NtpServer {
    address: SocketAddr,
    queries: Arc<AtomicUsize>,
    stop: UdpSocket,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl NtpServer {
    fn ahead_by(seconds: i64) -> Self {
        Self::changing(seconds, |_| {})
    }

    /// `change` makes the answer what it should not be.
    fn changing(seconds: i64, change: impl Fn(&mut Answer) + Send + 'static) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        let stop = UdpSocket::bind("127.0.0.1:0").unwrap();
        let stopper = stop.local_addr().unwrap();
        let queries = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&queries);
        let thread = std::thread::spawn(move || {
            let mut query = [0; 1024];
            loop {
                let (length, from) = socket.recv_from(&mut query).unwrap();
                if from == stopper {
                    return;
                }
                count.fetch_add(1, Ordering::SeqCst);
                assert_eq!(length, PACKET_BYTES);
                assert_eq!(query[0], 0x23, "version 4, client");
                let mut answer = [0; PACKET_BYTES];
                (answer[0], answer[1]) = (0x24, 2);
                answer[24..32].copy_from_slice(&query[40..48]);
                answer[32..40].copy_from_slice(&now(seconds));
                answer[40..48].copy_from_slice(&now(seconds));
                change(&mut answer);
                socket.send_to(&answer, from).unwrap();
            }
        });
        Self {
            address,
            queries,
            stop,
            thread: Some(thread),
        }
    }

    fn queries(&self) -> usize {
        self.queries.load(Ordering::SeqCst)
    }
}

impl Drop for NtpServer {
    fn drop(&mut self) {
        self.stop.send_to(&[0], self.address).unwrap();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

fn now(ahead: i64) -> [u8; 8] {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let seconds = (now.as_secs() + EPOCH).checked_add_signed(ahead).unwrap();
    let fraction = (u64::from(now.subsec_nanos()) << 32) / 1_000_000_000;
    let mut stamp = [0; 8];
    stamp[..4].copy_from_slice(&u32::try_from(seconds % (1 << 32)).unwrap().to_be_bytes());
    stamp[4..].copy_from_slice(&u32::try_from(fraction).unwrap().to_be_bytes());
    stamp
}

async fn check(node: &TestNode, server: &str) -> Result<Time, Status> {
    let mut client = TimeServiceClient::new(node.connect().await);
    let request = TimeRequest {
        server: server.to_owned(),
    };
    let answer = soon("the time", client.time_check(request)).await?;
    let mut messages = answer.into_inner().messages;
    assert_eq!(messages.len(), 1);
    Ok(messages.remove(0))
}

async fn time(node: &TestNode) -> Result<Time, Status> {
    let mut client = TimeServiceClient::new(node.connect().await);
    let answer = soon("the time", client.time(())).await?;
    Ok(answer.into_inner().messages.remove(0))
}

fn seconds(time: &Time) -> f64 {
    let offset = time.offset.unwrap();
    offset.seconds as f64 + f64::from(offset.nanos) / 1e9
}

#[tokio::test]
async fn the_offset_to_a_server_is_measured() {
    let node = TestNode::start();
    for ahead in [0, 3600, -86_400] {
        let server = NtpServer::ahead_by(ahead);
        let found = check(&node, &server.address.to_string()).await.unwrap();
        assert_eq!(found.server, server.address.to_string());
        assert_eq!(found.stratum, 2);
        // Half of the way there and back is the error; the machine of the test may be slow.
        let way = found.round_trip.unwrap();
        let error = way.seconds as f64 + f64::from(way.nanos) / 1e9;
        assert!(
            (seconds(&found) - ahead as f64).abs() <= error / 2.0 + 0.001,
            "{found:?}"
        );
        let local = found.localtime.unwrap().seconds;
        let remote = found.remotetime.unwrap().seconds;
        assert!(
            (remote - local - ahead).abs() <= way.seconds + 1,
            "{found:?}"
        );
        assert!(found.kernel.is_some());
    }
}

#[tokio::test]
async fn answers_that_cannot_be_trusted_are_refused_with_the_reason() {
    let node = TestNode::start();
    type Change = fn(&mut Answer);
    let changes: [(Change, &str); 6] = [
        (|answer| answer[0] |= 0xc0, "not synchronized"),
        (|answer| answer[1] = 16, "stratum 16"),
        (|answer| answer[0] = 0x23, "mode 3"),
        (|answer| answer[40..48].fill(0), "no transmit timestamp"),
        (
            |answer| answer[32..40].copy_from_slice(&now(60)),
            "contradict",
        ),
        (
            |answer| {
                answer[1] = 0;
                answer[12..16].copy_from_slice(b"DENY");
            },
            "DENY",
        ),
    ];
    for (change, word) in changes {
        let server = NtpServer::changing(0, change);
        let status = check(&node, &server.address.to_string()).await.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        assert!(status.message().contains(word), "{word}: {status}");
    }
}

#[tokio::test]
async fn an_answer_to_another_query_is_none() {
    let node = TestNode::start();
    let server = NtpServer::changing(0, |answer| answer[24] ^= 1);
    let status = check(&node, &server.address.to_string()).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
    assert!(status.message().contains("did not answer"), "{status}");
}

#[tokio::test]
async fn bad_servers_are_refused() {
    let node = TestNode::start();
    for (server, code) in [
        ("", Code::InvalidArgument),
        ("a b", Code::InvalidArgument),
        ("host:0", Code::InvalidArgument),
        ("host:99999", Code::InvalidArgument),
        ("http://host", Code::InvalidArgument),
        ("../etc/passwd", Code::InvalidArgument),
        (&"x".repeat(100_000), Code::InvalidArgument),
        ("224.0.1.1", Code::InvalidArgument),
        ("255.255.255.255", Code::InvalidArgument),
        ("0.0.0.0", Code::InvalidArgument),
        ("[ff02::101]:123", Code::InvalidArgument),
        // Nothing listens there, and the kernel says so.
        ("127.66.5.4:1", Code::FailedPrecondition),
    ] {
        let status = check(&node, server).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().len() < 500, "{status}");
    }
}

#[tokio::test]
async fn only_an_operator_chooses_the_server() {
    let node = TestNode::start();
    let server = NtpServer::ahead_by(0);
    let request = || TimeRequest {
        server: server.address.to_string(),
    };
    let reader = node.credentials("reader", &[Role::Reader]);
    let mut reader = TimeServiceClient::new(node.connect_as(&reader).await);
    let status = reader.time_check(request()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    reader.time(()).await.unwrap();
    assert_eq!(server.queries(), 0);
    let operator = node.credentials("operator", &[Role::Operator]);
    let mut operator = TimeServiceClient::new(node.connect_as(&operator).await);
    operator.time_check(request()).await.unwrap();
    // It makes the node send packets, so it is audited.
    let audit = node.cli().run(["logs", "audit"]).ok();
    assert!(audit.contains("/time.TimeService/TimeCheck"), "{audit}");
}

#[tokio::test]
async fn queries_of_one_caller_are_bounded_and_block_no_other_call() {
    let node = TestNode::start();
    // It takes packets and never answers, so that every query takes its whole time.
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let server = silent.local_addr().unwrap().to_string();
    let client = TimeServiceClient::new(node.connect().await);
    let queries = (0..64).map(|_| {
        let (mut client, server) = (client.clone(), server.clone());
        async move { client.time_check(TimeRequest { server }).await }
    });
    let queries = tokio::spawn(futures_util::future::join_all(queries));
    let reader = node.credentials("reader", &[Role::Reader]);
    let mut reader = TimeServiceClient::new(node.connect_as(&reader).await);
    soon("another caller's time", reader.time(()))
        .await
        .unwrap();
    let mut refused = 0;
    for answer in soon("all queries", queries).await.unwrap() {
        match answer.unwrap_err() {
            status if status.code() == Code::ResourceExhausted => refused += 1,
            status => assert_eq!(status.code(), Code::DeadlineExceeded, "{status}"),
        }
    }
    assert!(refused > 0);
}

#[tokio::test]
async fn without_a_server_the_kernel_tells() {
    let node = TestNode::start();
    let found = time(&node).await.unwrap();
    assert_eq!(found.server, "");
    assert!(found.localtime.is_some());
    let kernel = found.kernel.unwrap();
    assert!(kernel.max_error.is_some());
    assert_eq!(found.remotetime.is_some(), kernel.synchronized);
}

#[tokio::test]
async fn the_configured_server_is_asked_once_for_all_readers_and_can_change() {
    let server = NtpServer::ahead_by(7200);
    let config = |address: &str| format!("[time]\nserver = '{address}'\n");
    let node = TestNode::builder()
        .config(&config(&server.address.to_string()))
        .start();
    let calls = (0..8).map(|_| time(&node));
    for found in futures_util::future::join_all(calls).await {
        let found = found.unwrap();
        assert_eq!(found.server, server.address.to_string());
        assert!((seconds(&found) - 7200.0).abs() < 60.0, "{found:?}");
    }
    let queries = server.queries();
    assert!(queries < 8, "{queries} queries for 8 calls");

    let other = NtpServer::ahead_by(-7200);
    std::fs::write(node.config_file(), config(&other.address.to_string())).unwrap();
    let reloaded = crate::daemon::wait_for_event(&node, "configuration reloaded").await;
    node.signal(rustix::process::Signal::HUP);
    reloaded.await.unwrap();
    let found = time(&node).await.unwrap();
    assert_eq!(found.server, other.address.to_string());
    assert!(seconds(&found) < -7000.0);
}

#[test]
fn a_server_that_is_none_is_refused_in_the_configuration() {
    let builder = TestNode::builder().config("[time]\nserver = 'not a host'\n");
    let (said, _) = builder.refused();
    assert!(
        said.contains("not a host") && said.contains("HOST:PORT"),
        "{said}"
    );
}

#[test]
fn the_command_shows_the_offset() {
    let node = TestNode::start();
    let server = NtpServer::ahead_by(3600);
    let address = server.address.to_string();
    let shown = node.cli().run(["time", "--check", &address]).ok();
    assert!(shown.contains(&address), "{shown}");
    // Exact but for the round trip, which may be slow.
    assert!(shown.contains("+360") || shown.contains("+359"), "{shown}");
    let json = node.cli().run(["time", "-o", "json"]).json();
    assert!(json[0]["localtime"].is_string(), "{json}");
    assert!(json[0]["kernel"]["synchronized"].is_boolean(), "{json}");
    let yaml = node.cli().run(["time", "-o", "yaml"]).ok();
    assert!(yaml.contains("localtime:"), "{yaml}");
    node.cli().run(["time", "--check", ""]).failed(2);
    node.cli().run(["time", "--check", "a b"]).failed(2);
}

#[tokio::test]
async fn every_node_compares_its_own_clock() {
    let fleet = TestFleet::start(2);
    let server = NtpServer::ahead_by(0);
    let mut client = TimeServiceClient::new(fleet.nodes[0].connect().await);
    let request = TimeRequest {
        server: server.address.to_string(),
    };
    let reply = client.time_check(to_nodes(request, fleet.names())).await;
    let messages = reply.unwrap().into_inner().messages;
    assert_eq!(messages.len(), 2);
    assert!(messages.iter().all(|message| message.offset.is_some()));
    assert_eq!(server.queries(), 2);
}
