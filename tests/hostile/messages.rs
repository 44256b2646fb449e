//! Calls that are HTTP/2 and gRPC in form, but lie about what they carry.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{Full, StreamBody};
use mainstay_api::machine::LogsRequest;
use mainstay_identity::{RULES, Role};
use mainstay_testkit::{TestNode, soon};
use prost::Message;
use prost_reflect::DescriptorPool;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::body::Body;
use tonic::transport::Channel;
use tonic::{Code, Status};
use tower::{Service, ServiceExt};

use super::{ask_version, assert_unharmed, http2, noise};

const LOGS: &str = "/machine.MachineService/Logs";
const VERSION: &str = "/machine.MachineService/Version";
/// The largest message a node takes.
const LIMIT: usize = 32 << 20;

fn request(path: &str, body: Body) -> http::Request<Body> {
    http::Request::post(path)
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .body(body)
        .unwrap()
}

/// Sends a call and returns the status in the headers of its response; `Ok` if a body follows.
async fn send(channel: &Channel, request: http::Request<Body>) -> Result<(), Status> {
    let mut channel = channel.clone();
    let ready = channel.ready().await.map_err(lost)?;
    let answer = soon("an answer", ready.call(request)).await.map_err(lost)?;
    if !answer.status().is_success() {
        return Err(Status::unknown(format!("HTTP {}", answer.status())));
    }
    match Status::from_header_map(answer.headers()) {
        Some(status) if status.code() != Code::Ok => Err(status),
        _ => Ok(()),
    }
}

fn lost(error: impl std::fmt::Display) -> Status {
    Status::aborted(format!("the connection was lost: {error}"))
}

fn framed(message: &[u8]) -> Body {
    frame(0, u32::try_from(message.len()).unwrap(), message)
}

fn frame(flag: u8, length: u32, message: &[u8]) -> Body {
    let mut bytes = vec![flag];
    bytes.extend_from_slice(&length.to_be_bytes());
    bytes.extend_from_slice(message);
    Body::new(Full::new(Bytes::from(bytes)))
}

fn methods() -> Vec<String> {
    let pool = DescriptorPool::decode(mainstay_api::FILE_DESCRIPTOR_SET).unwrap();
    let services: Vec<_> = pool.services().collect();
    services
        .iter()
        .flat_map(|service| {
            let name = service.full_name();
            service
                .methods()
                .map(move |method| format!("/{name}/{}", method.name()))
        })
        .collect()
}

/// Bytes that are no message of any type: no rpc may get as far as doing something.
fn malformed(seed: u64) -> Vec<Vec<u8>> {
    let after = |start: &[u8]| [start, &noise(seed, 300)].concat();
    vec![
        // A field that ends before it begins, and one that claims four gigabytes.
        vec![0x0a],
        vec![0x0a, 0x7f, b'x'],
        vec![0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f],
        // A wire type that does not exist, and a field number that does not.
        after(&[0x0f]),
        after(&[0x00]),
        // A number that never ends.
        after(&[
            0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
        ]),
        // Groups in groups, none of them closed.
        vec![0x0b; 4096],
    ]
}

#[tokio::test]
async fn malformed_messages_are_refused_by_every_rpc() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let methods = methods();
    assert_eq!(methods.len(), 89);
    for (path, seed) in methods.iter().zip(1..) {
        for message in malformed(seed) {
            let status = send(&channel, request(path, framed(&message)))
                .await
                .expect_err(path);
            assert_ne!(
                status.code(),
                Code::Aborted,
                "{path} {message:x?}: {status}"
            );
            assert_ne!(
                status.code(),
                Code::Unknown,
                "{path} {message:x?}: {status}"
            );
        }
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn noise_is_answered_by_every_rpc_that_only_reads() {
    let node = TestNode::start();
    // Noise may happen to be a message; a reader's cannot do any harm.
    let channel = node
        .connect_as(&node.credentials("noisy", &[Role::Reader]))
        .await;
    let reading = RULES.iter().filter(|rule| rule.role <= Role::Reader);
    for (rule, seed) in reading.zip(1..) {
        for length in [1, 2, 7, 64, 1000] {
            let body = framed(&noise(seed * 31, length));
            if let Err(status) = send(&channel, request(rule.method, body)).await {
                assert_ne!(status.code(), Code::Aborted, "{}: {status}", rule.method);
            }
        }
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn frames_that_lie_are_refused_with_a_status() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let message = LogsRequest {
        id: "mainstay".to_owned(),
        ..LogsRequest::default()
    };
    let message = message.encode_to_vec();
    let honest = u32::try_from(message.len()).unwrap();
    for (what, body, codes) in [
        (
            "longer than sent",
            frame(0, honest + 100, &message),
            &[Code::Internal, Code::InvalidArgument][..],
        ),
        (
            "four gigabytes",
            frame(0, u32::MAX, &message),
            &[Code::OutOfRange, Code::ResourceExhausted],
        ),
        (
            "compressed without saying how",
            frame(1, honest, &message),
            &[Code::Internal],
        ),
        (
            "a flag of its own",
            frame(7, honest, &message),
            &[Code::Internal],
        ),
        (
            "a header cut short",
            Body::new(Full::from(&b"\0\0"[..])),
            &[Code::Internal, Code::InvalidArgument],
        ),
        (
            "no message",
            Body::empty(),
            &[Code::Internal, Code::InvalidArgument, Code::Unimplemented],
        ),
    ] {
        let status = send(&channel, request(LOGS, body)).await.expect_err(what);
        assert!(codes.contains(&status.code()), "{what}: {status}");
        assert!(!status.message().is_empty(), "{what}");
    }
    ask_version(channel).await;
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn an_unknown_encoding_is_refused() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let mut request = request(VERSION, frame(1, 3, b"abc"));
    let headers = request.headers_mut();
    headers.insert("grpc-encoding", "brotli-but-better".parse().unwrap());
    let status = send(&channel, request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_bomb_of_metadata_is_refused_and_the_connection_goes_on() {
    let node = TestNode::start();
    let channel = node.connect().await;
    for (count, length) in [(1, 540_000), (7000, 40), (68, 8000)] {
        let mut bomb = request(VERSION, framed(&[]));
        for number in 0..count {
            let name: http::HeaderName = format!("x-{number}").parse().unwrap();
            let value = http::HeaderValue::from_bytes(&vec![b'v'; length]).unwrap();
            bomb.headers_mut().insert(name, value);
        }
        let status = send(&channel, bomb).await.unwrap_err();
        assert!(status.message().contains("431"), "{count}: {status}");
        ask_version(channel.clone()).await;
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn an_endless_path_is_refused_and_kept_out_of_the_log() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let path = format!("/{}", "p".repeat(50_000));
    let status = send(&channel, request(&path, framed(&[])))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented, "{status}");
    assert!(status.message().len() < 1000, "the path is not repeated");

    // Longer than a client library would let us: refused, or the connection ended.
    let mut bytes = http2::opening();
    http2::call(&mut bytes, 0, &format!("/{}", "p".repeat(128 << 10)), &[]);
    let mut stream = node.admin().handshake(node.listen()).await.unwrap();
    stream.write_all(&bytes).await.unwrap();
    let mut answer = [0; 9];
    let _ = soon("an answer or the end", stream.read(&mut answer)).await;

    assert_unharmed(&node).await;
    let log = node.cli().run(["logs", "mainstay"]).ok();
    let longest = log.lines().map(str::len).max().unwrap();
    assert!(longest < 1000, "a log line has {longest} bytes");
}

fn log_request_of(bytes: usize) -> Vec<u8> {
    let mut request = LogsRequest {
        id: "x".repeat(bytes),
        ..LogsRequest::default()
    };
    let excess = request.encoded_len() - bytes;
    request.id.truncate(bytes - excess);
    let message = request.encode_to_vec();
    assert_eq!(message.len(), bytes);
    message
}

#[tokio::test]
async fn one_byte_too_many_is_refused_by_size() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let status = send(&channel, request(LOGS, framed(&log_request_of(LIMIT + 1))))
        .await
        .unwrap_err();
    assert!(
        matches!(status.code(), Code::OutOfRange | Code::ResourceExhausted),
        "{status}"
    );
    assert!(
        status.message().contains(&LIMIT.to_string()) || status.message().contains("32 MiB"),
        "says how much is allowed: {status}"
    );
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn the_largest_message_is_read_and_its_text_not_sent_back() {
    let node = TestNode::start();
    let channel = node.connect().await;
    for size in [LIMIT, 100 << 10] {
        let status = send(&channel, request(LOGS, framed(&log_request_of(size))))
            .await
            .unwrap_err();
        assert!(
            matches!(status.code(), Code::NotFound | Code::InvalidArgument),
            "{size}: {status}"
        );
        let told = status.message().len();
        assert!(told < 4096, "{size}: a message of {told} bytes came back");
    }
    assert_unharmed(&node).await;
}

/// Sends `bytes` of a message that claims to be as large as any may be, and never the rest.
/// Gives a sender that keeps the call open, or nothing when the node has ended the call.
async fn begin_large_message(channel: Channel, bytes: usize) -> Option<mpsc::Sender<Bytes>> {
    const PIECE: usize = 256 << 10;
    let (sender, pieces) = mpsc::channel::<Bytes>(1);
    let frames =
        ReceiverStream::new(pieces).map(|piece| Ok::<_, Status>(http_body::Frame::data(piece)));
    let call = request(LOGS, Body::new(StreamBody::new(frames)));
    tokio::spawn(async move { send(&channel, call).await });
    let mut head = vec![0];
    head.extend_from_slice(&u32::try_from(LIMIT).unwrap().to_be_bytes());
    sender.send(head.into()).await.ok()?;
    let piece = Bytes::from(vec![b'x'; PIECE]);
    for _ in 0..bytes / PIECE {
        sender.send(piece.clone()).await.ok()?;
    }
    Some(sender)
}

/// One client, one connection: what it makes the node keep must not add up without bound.
#[tokio::test]
async fn many_large_messages_at_once_do_not_fill_the_memory() {
    let node = TestNode::start();
    let channel = node
        .connect_as(&node.credentials("greedy", &[Role::Reader]))
        .await;
    let mut begun = tokio::task::JoinSet::new();
    for _ in 0..12 {
        let channel = channel.clone();
        begun.spawn(async move {
            // A node may also let a message wait that it has no room for.
            let patience = Duration::from_secs(8);
            let sent = begin_large_message(channel, 24 << 20);
            tokio::time::timeout(patience, sent).await
        });
    }
    let held = begun.join_all().await;
    assert_unharmed(&node).await;
    drop(held);
}
