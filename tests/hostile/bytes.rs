//! Bytes that are not TLS, not HTTP/2, not gRPC.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http_body_util::BodyExt;
use mainstay_identity::tls;
use mainstay_testkit::{TestNode, soon};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::rustls::ClientConnection;
use tonic::body::Body;
use tower::{Service, ServiceExt};

use super::{ask_version, assert_unharmed, http2, noise, open_sockets};

const HTTP1: &[u8] = b"GET / HTTP/1.1\r\nhost: node\r\nconnection: keep-alive\r\n\r\n";

fn node_with_short_handshake_timeout() -> TestNode {
    TestNode::builder()
        .config("[limits]\nhandshake_timeout = '1s'\n")
        .start()
}

/// Sends, and waits until the node ends the connection; an error is an end like any other.
async fn until_ended(mut stream: impl AsyncRead + AsyncWrite + Unpin, bytes: &[u8]) -> Vec<u8> {
    let mut answer = Vec::new();
    // A node that has seen enough does not take the rest.
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    let _ = soon("the node to hang up", stream.read_to_end(&mut answer)).await;
    answer
}

#[tokio::test]
async fn connections_without_tls_are_closed() {
    let node = node_with_short_handshake_timeout();
    let mut attacks: Vec<Vec<u8>> = (0..24).map(|seed| noise(seed, 1024)).collect();
    attacks.push(vec![0xff]);
    attacks.push(vec![0x16]);
    attacks.push(vec![0; 1 << 20]);
    // A handshake record that announces more than any record may hold.
    attacks.push(b"\x16\x03\x01\xff\xff\x01\xff\xff\xff".to_vec());
    attacks.push(HTTP1.to_vec());
    attacks.push(http2::opening());
    let attempts = attacks.iter().map(|bytes| async {
        let stream = TcpStream::connect(node.listen()).await.unwrap();
        until_ended(stream, bytes).await
    });
    join_all(attempts).await;
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn connections_closed_without_a_byte_leave_no_socket() {
    let node = node_with_short_handshake_timeout();
    assert_unharmed(&node).await;
    let before = open_sockets(&node);
    for _ in 0..200 {
        drop(TcpStream::connect(node.listen()).await.unwrap());
    }
    assert_unharmed(&node).await;
    soon("the sockets to be closed", async {
        while open_sockets(&node) > before {
            ask_version(node.connect_locally().await).await;
        }
    })
    .await;
}

#[tokio::test]
async fn a_handshake_that_stalls_is_ended_in_its_time() {
    let node = node_with_short_handshake_timeout();
    let config = tls::client_config(&node.ca(), None).unwrap();
    let name = ServerName::from(node.listen().ip());
    let mut hello = Vec::new();
    let mut client = ClientConnection::new(config, name).unwrap();
    client.write_tls(&mut hello).unwrap();

    let began = Instant::now();
    let stream = TcpStream::connect(node.listen()).await.unwrap();
    let answer = until_ended(stream, &hello[..hello.len() / 2]).await;
    assert!(answer.is_empty(), "half a hello has no answer");
    let took = began.elapsed();
    // The default is ten seconds: this shows that the configured bound is what ended it.
    assert!(took > Duration::from_millis(900), "{took:?}");
    assert!(took < Duration::from_secs(6), "{took:?}");

    // A whole hello and then silence is no better.
    let stream = TcpStream::connect(node.listen()).await.unwrap();
    let answer = until_ended(stream, &hello).await;
    assert!(!answer.is_empty(), "the node has answered the hello");
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn http1_in_clear_is_answered_with_an_end() {
    let node = node_with_short_handshake_timeout();
    let stream = TcpStream::connect(node.listen()).await.unwrap();
    until_ended(stream, HTTP1).await;
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn connections_without_http2_are_closed() {
    let node = TestNode::start();
    let mut attacks = vec![HTTP1.to_vec()];
    for seed in 0..16 {
        attacks.push(noise(seed, 512));
        // A good beginning, and then anything.
        let mut bytes = http2::opening();
        bytes.extend(noise(seed, 64 << 10));
        attacks.push(bytes);
    }
    let admin = node.admin();
    let attempts = attacks.iter().map(|bytes| async {
        let stream = admin.handshake(node.listen()).await.unwrap();
        until_ended(stream, bytes).await
    });
    join_all(attempts).await;
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn http2_without_grpc_gets_a_clear_status() {
    let node = TestNode::start();
    let mut channel = node.connect().await;
    for (method, kind) in [
        ("GET", "text/html"),
        ("POST", "application/json"),
        ("DELETE", ""),
    ] {
        let request = http::Request::builder()
            .method(method)
            .uri("/")
            .header("content-type", kind)
            .body(Body::empty())
            .unwrap();
        let answer = channel.ready().await.unwrap().call(request).await.unwrap();
        assert_eq!(answer.status(), 415, "{method} {kind}");
        let text = answer.into_body().collect().await.unwrap().to_bytes();
        let text = String::from_utf8(text.to_vec()).unwrap();
        assert!(text.contains("gRPC"), "{text}");
    }
    assert_unharmed(&node).await;
}
