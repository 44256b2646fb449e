//! Clients that ask for much and read nothing.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mainstay_api::machine::LogsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_identity::Role;
use mainstay_testkit::{TestNode, soon};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use super::{assert_unharmed, http2};

const STREAMS: u32 = 200;
const STOP_TIMEOUT: Duration = Duration::from_secs(2);
/// A busy machine may take this much longer than promised.
const MARGIN: Duration = Duration::from_secs(4);
const LINES: usize = 50_000;

/// A node with a log of several megabytes.
fn talkative_node() -> TestNode {
    talkative_node_with("stop_timeout = '2s'\n")
}

fn talkative_node_with(config: &str) -> TestNode {
    let builder = TestNode::builder().config(config);
    let log = builder.state().join("logs/big");
    std::fs::create_dir_all(&log).unwrap();
    let mut text = String::new();
    for number in 0..LINES {
        let _ = writeln!(
            text,
            "2026-01-01T00:00:00.{number:09}Z stdout F {number} {}",
            "x".repeat(100)
        );
    }
    std::fs::write(log.join("0000000001.log"), text).unwrap();
    builder.start()
}

fn all_of(id: &str, follow: bool) -> LogsRequest {
    LogsRequest {
        id: id.to_owned(),
        follow,
        tail_lines: -1,
        ..LogsRequest::default()
    }
}

/// Somebody else reads the same log to its end meanwhile.
async fn read_to_the_end(node: &TestNode) {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let request = all_of("big", false);
    let mut stream = client.logs(request).await.unwrap().into_inner();
    let mut lines = 0;
    while let Some(data) = soon("the log to end", stream.message()).await.unwrap() {
        lines += data.bytes.iter().filter(|byte| **byte == b'\n').count();
    }
    assert_eq!(lines, LINES);
}

/// Opens a connection that asks for the whole log 200 times and reads nothing.
async fn unread_connection(node: &TestNode, name: &str) -> TlsStream<TcpStream> {
    let mut bytes = http2::opening();
    for number in 0..STREAMS {
        http2::follow_log(&mut bytes, number, "big");
    }
    let credentials = node.credentials(name, &[Role::Reader]);
    let mut stream = credentials.handshake(node.listen()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
    stream
}

fn assert_stops_in_time(node: &mut TestNode) {
    let began = Instant::now();
    node.signal(Signal::TERM);
    let status = node.wait();
    assert_eq!(status.code(), Some(0), "{status:?}");
    let took = began.elapsed();
    assert!(took < STOP_TIMEOUT + MARGIN, "{took:?}");
}

#[tokio::test]
async fn unread_streams_delay_neither_others_nor_the_stop() {
    let mut node = talkative_node();
    let channel = node.connect().await;
    let mut client = MachineServiceClient::new(channel);
    let mut streams = Vec::new();
    for _ in 0..STREAMS {
        let stream = client.logs(all_of("big", true)).await.unwrap();
        streams.push(stream.into_inner());
    }
    read_to_the_end(&node).await;
    assert_unharmed(&node).await;
    assert_stops_in_time(&mut node);
    drop(streams);
}

/// Flow control does not help against a client that grants every window and then leaves the
/// bytes in the socket.
#[tokio::test]
async fn unread_connections_stay_within_the_memory_bound_and_end_with_the_stop() {
    let mut node = talkative_node();
    let mut stuck = Vec::new();
    for name in ["one", "two", "three", "four"] {
        stuck.push(unread_connection(&node, name).await);
    }
    for _ in 0..2 {
        read_to_the_end(&node).await;
    }
    assert_unharmed(&node).await;
    assert_stops_in_time(&mut node);
    drop(stuck);
}

#[tokio::test]
async fn a_second_signal_ends_a_stop_that_an_unread_connection_holds_up() {
    let mut node = talkative_node_with("stop_timeout = '1h'\n");
    let stuck = unread_connection(&node, "stuck").await;
    read_to_the_end(&node).await;
    node.signal(Signal::TERM);
    // Without the second signal it would take an hour; the first alone must not end it.
    let pid = Pid::from_raw(node.pid().try_into().unwrap()).unwrap();
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).unwrap();
    let half_a_second = Timespec {
        tv_sec: 0,
        tv_nsec: 500_000_000,
    };
    let exited = poll(
        &mut [PollFd::new(&pidfd, PollFlags::IN)],
        Some(&half_a_second),
    );
    assert_eq!(exited, Ok(0), "the connection did not hold up the stop");
    node.signal(Signal::INT);
    assert!(node.wait().success());
    drop(stuck);
}

/// There is nothing to wait for: no call runs, and the default of ten seconds is for calls.
#[tokio::test]
async fn an_idle_unread_connection_does_not_delay_the_stop() {
    let mut node = TestNode::start();
    let mut stream = node.admin().handshake(node.listen()).await.unwrap();
    stream.write_all(&http2::opening()).await.unwrap();
    stream.flush().await.unwrap();
    assert_unharmed(&node).await;
    assert_stops_in_time(&mut node);
    drop(stream);
}

#[tokio::test]
async fn an_unfinished_call_does_not_delay_the_stop() {
    let mut node = talkative_node();
    // The head of a call and no message: the node waits for the rest.
    let mut bytes = http2::opening();
    http2::begin_call(&mut bytes, 0, "/machine.MachineService/Logs");
    let mut stream = node.admin().handshake(node.listen()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    stream.flush().await.unwrap();
    assert_unharmed(&node).await;
    assert_stops_in_time(&mut node);
    drop(stream);
}
