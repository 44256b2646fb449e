//! Clients of the unix socket and the `:authority` they make of its path.

use std::collections::BTreeMap;

use mainstay_testkit::{TestNode, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::{assert_unharmed, http2};

const DATA: u8 = 0;
const RESET: u8 = 3;
const GOAWAY: u8 = 7;

/// A header block of `Version` with this representation of `:authority`.
fn block(authority: &[u8]) -> Vec<u8> {
    // :method POST and :scheme http, by the static table.
    let mut block = vec![0x83, 0x86];
    // Literals without indexing, with the names of the static table or their own.
    block.push(0x04);
    http2::text(&mut block, "/machine.MachineService/Version");
    block.extend_from_slice(authority);
    for (name, value) in [("content-type", "application/grpc"), ("te", "trailers")] {
        block.push(0);
        http2::text(&mut block, name);
        http2::text(&mut block, value);
    }
    block
}

/// A literal `:authority` with incremental indexing, as gRPC-core sends it.
fn indexed(value: &str) -> Vec<u8> {
    let mut authority = vec![0x41];
    http2::text(&mut authority, value);
    authority
}

/// The kind of the first frame that says what becomes of each of these streams.
async fn outcomes(stream: &mut UnixStream, wanted: &[u32]) -> BTreeMap<u32, u8> {
    let mut kinds = BTreeMap::new();
    while kinds.len() < wanted.len() {
        let mut head = [0; 9];
        stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        stream.read_exact(&mut payload).await.unwrap();
        let number = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
        let kind = head[3];
        assert_ne!(kind, GOAWAY, "{payload:x?}");
        if wanted.contains(&number) && matches!(kind, DATA | RESET) {
            kinds.entry(number).or_insert(kind);
        }
    }
    kinds
}

#[tokio::test]
async fn every_authority_is_accepted() {
    let node = TestNode::start();
    let path = node.socket().display().to_string();
    let encoded = path.replace('/', "%2F");
    let representations = [
        indexed("localhost"),
        // gRPC-core, grpc-java and others, and nothing at all.
        indexed(&encoded),
        indexed(&path),
        vec![0x81],
        Vec::new(),
    ];
    for authority in &representations {
        let mut stream = UnixStream::connect(node.socket()).await.unwrap();
        let mut bytes = http2::opening();
        http2::call_with_block(&mut bytes, 0, &block(authority));
        let again = authority.first() == Some(&0x41);
        if again {
            // Once more, by the entry that the first call has made.
            http2::call_with_block(&mut bytes, 1, &block(&[0xbe]));
        }
        stream.write_all(&bytes).await.unwrap();
        let mut calls = vec![1];
        calls.extend(again.then_some(3));
        let kinds = soon("the answers", outcomes(&mut stream, &calls)).await;
        assert!(kinds.values().all(|kind| *kind == DATA), "{authority:x?}");
    }
    assert_unharmed(&node).await;
}
