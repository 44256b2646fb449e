//! A node of the fleet that has gone bad: with a certificate everybody trusts, it answers with
//! whatever harms most. The others' answers arrive whole and in time all the same.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use hyper_util::rt::{TokioExecutor, TokioIo};
use mainstay_api::common::Data;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{ListRequest, ReadRequest};
use mainstay_api::os::{Process, ProcessInfo, ProcessesResponse};
use mainstay_identity::tls::ServerTls;
use mainstay_identity::{CertifiedNode, NodeNames};
use mainstay_testkit::{TestFleet, TestNode, soon, to_nodes};
use prost::Message;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_stream::StreamExt;
use tonic::Code;

use super::assert_unharmed;

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// The behaviour of a hostile node towards every connection.
#[derive(Debug, Clone, Copy)]
enum Bad {
    /// Takes the connection and says nothing.
    Silent,
    /// Answers the handshake with something else.
    NotTls,
    /// Speaks TLS, and then nothing that is known.
    NotHttp,
    /// Answers every call with this.
    Answers(fn() -> Response<Body>),
}

struct BadNode {
    address: SocketAddr,
    serving: tokio::task::JoinHandle<()>,
}

impl BadNode {
    async fn start(fleet: &TestNode, bad: Bad) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = TlsAcceptor::from(certificate(fleet).config());
        let serving = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                tokio::spawn(misbehave(bad, stream, acceptor.clone()));
            }
        });
        Self { address, serving }
    }

    fn name(&self) -> String {
        self.address.to_string()
    }
}

impl Drop for BadNode {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

fn certificate(fleet: &TestNode) -> ServerTls {
    let names = NodeNames {
        common_name: "bad".to_owned(),
        dns: vec!["bad".to_owned()],
        ips: vec![[127, 0, 0, 1].into()],
    };
    let issued = fleet
        .authority()
        .issue_node(&names, Duration::from_secs(3600))
        .unwrap();
    ServerTls::new(&CertifiedNode {
        cert: issued.cert,
        key: issued.key,
        ca: issued.ca,
        info: issued.info,
    })
    .unwrap()
}

async fn misbehave(bad: Bad, mut stream: TcpStream, acceptor: TlsAcceptor) {
    match bad {
        Bad::Silent => {
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
        Bad::NotTls => {
            let _ = stream.write_all(b"SSH-2.0-OpenSSH_9.2\r\n").await;
        }
        Bad::NotHttp => {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.write_all(&[0xff; 1 << 16]).await;
                let mut rest = Vec::new();
                let _ = stream.read_to_end(&mut rest).await;
            }
        }
        Bad::Answers(answer) => {
            let Ok(stream) = acceptor.accept(stream).await else {
                return;
            };
            let service = hyper_util::service::TowerToHyperService::new(tower::service_fn(
                move |_| async move { Ok::<_, Infallible>(answer()) },
            ));
            let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        }
    }
}

/// A gRPC answer of these frames.
fn grpc(frames: impl futures_util::Stream<Item = Frame<Bytes>> + Send + 'static) -> Response<Body> {
    let body = StreamBody::new(futures_util::StreamExt::map(frames, Ok)).boxed_unsync();
    Response::builder()
        .header("content-type", "application/grpc")
        .body(body)
        .unwrap()
}

fn data(bytes: Vec<u8>) -> Frame<Bytes> {
    Frame::data(bytes.into())
}

fn message(bytes: &[u8]) -> Frame<Bytes> {
    let mut framed = vec![0];
    framed.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
    framed.extend_from_slice(bytes);
    data(framed)
}

fn status(code: &str, text: &str) -> Frame<Bytes> {
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", code.parse().unwrap());
    trailers.insert("grpc-message", text.parse().unwrap());
    Frame::trailers(trailers)
}

/// Ways to answer a call that has one answer, with a word of what is then said of the node.
const ANSWERS: &[(&str, Bad)] = &[
    ("within", Bad::Silent),
    ("TLS", Bad::NotTls),
    ("", Bad::NotHttp),
    (
        "HTTP status 500",
        Bad::Answers(|| {
            let mut response = grpc(stream::iter([]));
            *response.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
            response
        }),
    ),
    (
        "not with gRPC",
        Bad::Answers(|| {
            let mut response = grpc(stream::iter([]));
            response
                .headers_mut()
                .insert("content-type", "text/html".parse().unwrap());
            response
        }),
    ),
    ("no answer within", Bad::Answers(|| grpc(stream::pending()))),
    (
        "without an answer",
        Bad::Answers(|| grpc(stream::iter([status("0", "")]))),
    ),
    (
        "before the answer was complete",
        Bad::Answers(|| grpc(stream::iter([]))),
    ),
    (
        "is truncated",
        Bad::Answers(|| grpc(stream::iter([data(vec![0, 0]), status("0", "")]))),
    ),
    (
        "is truncated",
        Bad::Answers(|| {
            grpc(stream::iter([
                data(vec![0, 0, 0, 0, 9, 1]),
                status("0", ""),
            ]))
        }),
    ),
    (
        "the most is",
        Bad::Answers(|| grpc(stream::iter([data(vec![0, 255, 255, 255, 255])]))),
    ),
    (
        "no answer within",
        Bad::Answers(|| {
            // Half of what is allowed, beside answers of any size, and it never comes.
            grpc(futures_util::StreamExt::chain(
                stream::iter([data(vec![0, 1, 0, 0, 0])]),
                stream::pending(),
            ))
        }),
    ),
    (
        "compressed",
        Bad::Answers(|| grpc(stream::iter([data(vec![1, 0, 0, 0, 0])]))),
    ),
    (
        "not an answer to this call",
        Bad::Answers(|| grpc(stream::iter([message(&[0xff; 100]), status("0", "")]))),
    ),
    (
        "not an answer to this call",
        Bad::Answers(|| {
            // Well formed, but a process's command is no text.
            grpc(stream::iter([
                message(b"\x0a\x06\x12\x04\x42\x02\xff\xfe"),
                status("0", ""),
            ]))
        }),
    ),
    (
        "does not fit",
        Bad::Answers(|| {
            // Twelve million messages in 24 MB, and each would get its node's name.
            grpc(stream::iter([
                message(&[0x0a, 0x00].repeat(12 << 20)),
                status("0", ""),
            ]))
        }),
    ),
    (
        "second message",
        Bad::Answers(|| grpc(stream::iter([message(&[]), message(&[]), status("0", "")]))),
    ),
    (
        "it is haunted",
        Bad::Answers(|| grpc(stream::iter([status("10", "it is haunted")]))),
    ),
    (
        "it is haunted",
        Bad::Answers(|| grpc(stream::iter([message(&[]), status("13", "it is haunted")]))),
    ),
];

const IMPATIENT: &str =
    "[fleet]\nconnect_timeout = '2s'\nanswer_timeout = '5s'\n[forwarding]\ntargets = 'any'\n";

#[tokio::test]
async fn whatever_a_node_answers_the_others_answers_arrive_whole() {
    let fleet = TestFleet::with_config(2, IMPATIENT);
    let machine = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let cases = ANSWERS
        .iter()
        .enumerate()
        .map(async |(number, (word, bad))| {
            let node = BadNode::start(&fleet.nodes[0], *bad).await;
            let mut names = fleet.names();
            names.push(node.name());
            let mut machine = machine.clone();
            let asked = machine.processes(to_nodes((), &names));
            let reply = soon("the answers", asked).await.unwrap().into_inner();
            assert_eq!(reply.messages.len(), 3, "{number}: {word}");
            for message in reply.messages {
                let metadata = message.metadata.unwrap();
                if metadata.hostname == node.name() {
                    assert!(
                        metadata.error.contains(word),
                        "{number} {word}: {metadata:?}"
                    );
                    assert!(!metadata.error.is_empty(), "{number}");
                    assert!(message.processes.is_empty());
                } else {
                    assert_eq!(metadata.error, "", "{number}: {word}");
                    assert!(!message.processes.is_empty());
                }
            }
        });
    futures_util::future::join_all(cases).await;
    assert_unharmed(&fleet.nodes[0]).await;
}

#[tokio::test]
async fn whatever_a_node_streams_the_others_streams_arrive_whole() {
    let fleet = TestFleet::with_config(2, IMPATIENT);
    let mut machine = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let request = ListRequest {
        root: "/usr/share/doc".to_owned(),
        recurse: true,
        ..ListRequest::default()
    };
    // Silence is allowed in a stream; the rest is not.
    let wrong = ANSWERS.iter().filter(|(word, bad)| {
        let quiet = word.contains("no answer within") || word.contains("without an answer");
        let fitting = word.contains("fit") || word.contains("second message");
        !quiet && !fitting && !matches!(bad, Bad::Answers(_) if word.contains("this call"))
    });
    let garbage = (
        "not an answer to this call",
        Bad::Answers(|| grpc(stream::iter([message(&[0xff; 100])]))),
    );
    for (word, bad) in wrong.chain([&garbage]) {
        let node = BadNode::start(&fleet.nodes[0], *bad).await;
        let mut names = fleet.names();
        names.push(node.name());
        let mut stream = machine
            .list(to_nodes(request.clone(), &names))
            .await
            .unwrap()
            .into_inner();
        let mut entries = [0_u32; 2];
        let mut said = Vec::new();
        while let Some(info) = soon("the streams", stream.next()).await {
            let metadata = info.unwrap().metadata.unwrap();
            match names.iter().position(|name| *name == metadata.hostname) {
                Some(2) => said.push(metadata.error),
                Some(good) => entries[good] += 1,
                None => panic!("{metadata:?}"),
            }
        }
        assert_eq!(entries[0], entries[1], "{word}");
        assert!(entries[0] > 500);
        let last = said.pop().unwrap();
        assert!(last.contains(word) && !last.is_empty(), "{word}: {last}");
    }
    assert_unharmed(&fleet.nodes[0]).await;
}

#[tokio::test]
async fn an_endless_stream_leaves_room_for_the_others() {
    const FILE_BYTES: usize = 4 << 20;
    let fleet = TestFleet::to_anywhere(2);
    let endless = BadNode::start(
        &fleet.nodes[0],
        Bad::Answers(|| {
            let chunk = Data {
                bytes: vec![b'x'; 64 << 10].into(),
                ..Data::default()
            };
            let chunk = message(&chunk.encode_to_vec()).into_data().ok().unwrap();
            grpc(stream::repeat_with(move || Frame::data(chunk.clone())))
        }),
    )
    .await;
    let mut machine = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let mut names = fleet.names();
    names.insert(0, endless.name());
    let file = fleet.nodes[0].scratch().join("file");
    std::fs::write(&file, vec![b'f'; FILE_BYTES]).unwrap();
    let request = ReadRequest {
        path: file.display().to_string(),
    };
    let mut stream = machine
        .read(to_nodes(request, &names))
        .await
        .unwrap()
        .into_inner();
    let mut read = [0_usize; 3];
    soon("both files and the flood beside them", async {
        while read.iter().any(|read| *read < FILE_BYTES) {
            let data = stream.next().await.unwrap().unwrap();
            let node = data.metadata.unwrap().hostname;
            let at = names.iter().position(|name| *name == node).unwrap();
            read[at] += data.bytes.len();
        }
    })
    .await;
    // Nobody reads now: the flood stops at the node's bound. Then the caller goes.
    assert_unharmed(&fleet.nodes[0]).await;
    drop(stream);
    assert_unharmed(&fleet.nodes[0]).await;
}

#[tokio::test]
async fn a_node_that_claims_to_be_another_is_shown_as_what_it_is() {
    let fleet = TestFleet::to_anywhere(1);
    let liar = BadNode::start(
        &fleet.nodes[0],
        Bad::Answers(|| {
            let reply = ProcessesResponse {
                messages: vec![Process {
                    metadata: Some(mainstay_api::common::Metadata {
                        hostname: "somebody-else".to_owned(),
                        ..Default::default()
                    }),
                    processes: vec![ProcessInfo::default()],
                }],
            };
            grpc(stream::iter([
                message(&reply.encode_to_vec()),
                status("0", ""),
            ]))
        }),
    )
    .await;
    let mut machine = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let reply = machine
        .processes(to_nodes((), [liar.name()]))
        .await
        .unwrap();
    let message = &reply.into_inner().messages[0];
    assert_eq!(message.metadata.as_ref().unwrap().hostname, liar.name());
    assert_eq!(message.processes.len(), 1);
}

#[tokio::test]
async fn a_caller_with_a_bound_gets_what_came_before_it() {
    let fleet = TestFleet::to_anywhere(2);
    let silent = BadNode::start(&fleet.nodes[0], Bad::Answers(|| grpc(stream::pending()))).await;
    let mut machine = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let mut names = fleet.names();
    names.push(silent.name());
    let mut request = to_nodes((), &names);
    request.set_timeout(Duration::from_secs(4));
    let reply = machine.memory(request).await.unwrap().into_inner();
    let failed: Vec<_> = reply
        .messages
        .iter()
        .filter(|message| message.meminfo.is_none())
        .collect();
    assert_eq!(failed.len(), 1);
    let metadata = failed[0].metadata.clone().unwrap();
    assert_eq!(metadata.status.unwrap().code, Code::DeadlineExceeded as i32);
}

#[tokio::test]
async fn a_node_that_closes_every_connection_fails_at_once() {
    let fleet = TestFleet::with_config(2, IMPATIENT);
    let (ended, mut connections) = tokio::sync::mpsc::unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let name = listener.local_addr().unwrap().to_string();
    let acceptor = TlsAcceptor::from(certificate(&fleet.nodes[0]).config());
    let serving = tokio::spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let stream = acceptor.accept(stream).await;
            ended.send(()).unwrap();
            drop(stream);
        }
    });
    let mut machine = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let asked = machine.memory(to_nodes((), [&name]));
    let reply = soon("the answer", asked).await.unwrap().into_inner();
    assert!(
        !reply.messages[0]
            .metadata
            .as_ref()
            .unwrap()
            .error
            .is_empty()
    );
    serving.abort();
    let mut count = 0;
    while connections.recv().await.is_some() {
        count += 1;
    }
    assert!((1..=9).contains(&count), "{count} connections for one call");
    assert_unharmed(&fleet.nodes[0]).await;
}
