//! Clients that take every place there is. Administrators still get in.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{Event, EventsRequest};
use mainstay_identity::Role;
use mainstay_testkit::{Credentials, TestNode, soon};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_stream::StreamExt;
use tonic::Streaming;
use tonic_reflection::pb::v1::ServerReflectionRequest;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;

use super::connections::{connect_from, until_ended};
use super::{ask_version, assert_unharmed, http2};

fn node_with(limits: &str) -> TestNode {
    TestNode::builder()
        .config(&format!("[limits]\n{limits}"))
        .start()
}

/// A connection with a call that goes on; `None` if the node refuses it.
async fn occupy(node: &TestNode, who: &Credentials) -> Option<Streaming<Event>> {
    let channel = mainstay_testkit::connect_tls(node.listen(), who)
        .await
        .ok()?;
    let mut machine = MachineServiceClient::new(channel);
    let last = EventsRequest {
        tail_events: 1,
        ..EventsRequest::default()
    };
    let mut stream = machine.events(last).await.ok()?.into_inner();
    stream.next().await?.ok()?;
    Some(stream)
}

#[tokio::test]
async fn running_calls_of_others_leave_connections_to_administrators() {
    const ALL: usize = 24;
    const RESERVED: usize = 3;
    let node = node_with(&format!(
        "connections = {ALL}\nconnections_per_client = {ALL}\n"
    ));
    let reader = node.credentials("rita", &[Role::Reader]);
    let mut occupied = Vec::new();
    while let Some(stream) = soon("an answer", occupy(&node, &reader)).await {
        occupied.push(stream);
        assert!(occupied.len() <= ALL);
    }
    assert_eq!(occupied.len(), ALL - RESERVED);
    let other = node.credentials("other", &[Role::Reader]);
    assert!(occupy(&node, &other).await.is_none());
    // Both doors are open to those who can do something about it.
    ask_version(node.connect().await).await;
    ask_version(node.connect_locally().await).await;
    let stream = occupy(&node, &node.admin()).await;
    ask_version(node.connect_locally().await).await;
    drop((stream, occupied));
    soon("a place for the other reader", async {
        while occupy(&node, &other).await.is_none() {}
    })
    .await;
}

#[tokio::test]
async fn unfinished_requests_time_out_and_streams_of_requests_do_not() {
    let node = node_with("request_timeout = '1s'\n");
    // A stream of requests that is silent between two of them.
    let (send, requests) = tokio::sync::mpsc::channel(1);
    let list = ServerReflectionRequest {
        message_request: Some(MessageRequest::ListServices(String::new())),
        ..ServerReflectionRequest::default()
    };
    send.send(list.clone()).await.unwrap();
    let requests = tokio_stream::wrappers::ReceiverStream::new(requests);
    let mut reflection = ServerReflectionClient::new(node.connect().await);
    let mut replies = reflection
        .server_reflection_info(requests)
        .await
        .unwrap()
        .into_inner();
    soon("the first reply", replies.next())
        .await
        .unwrap()
        .unwrap();

    let mut bytes = http2::opening();
    // No message, half of one, and a whole one without the end of the stream.
    http2::begin_call(&mut bytes, 0, "/machine.MachineService/Logs");
    let half = http2::begin_call(&mut bytes, 1, "/machine.MachineService/List");
    http2::data(&mut bytes, half, &[0, 0, 0, 0, 9, 1]);
    let whole = http2::begin_call(&mut bytes, 2, "/machine.MachineService/Version");
    http2::data(&mut bytes, whole, &[0; 5]);
    let mut connection = node.admin().handshake(node.listen()).await.unwrap();
    connection.write_all(&bytes).await.unwrap();
    connection.flush().await.unwrap();
    for method in ["Logs", "List", "Version"] {
        let admin = "who=\"admin (os:admin)\"";
        let from = connection.get_ref().0.local_addr().unwrap();
        node.wait_for_log(&format!(
            "method=/machine.MachineService/{method} {admin} from={from} code=DEADLINE_EXCEEDED"
        ));
    }

    send.send(list).await.unwrap();
    soon("the second reply", replies.next())
        .await
        .unwrap()
        .unwrap();
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_connection_that_never_speaks_http2_is_closed() {
    let node = node_with("handshake_timeout = '1s'\n");
    for sent in [&b""[..], b"PRI * HT"] {
        let mut connection = node.admin().handshake(node.listen()).await.unwrap();
        connection.write_all(sent).await.unwrap();
        connection.flush().await.unwrap();
        let mut rest = Vec::new();
        let ended = soon("the end", connection.read_to_end(&mut rest)).await;
        // Reset or closed: rustls tells a close without its notice apart.
        drop(ended);
    }
    assert_unharmed(&node).await;
}

/// A user of the machine has sixteen million addresses to connect from.
#[tokio::test]
async fn one_user_on_the_plain_listener_is_one_client() {
    const CONNECTIONS: u8 = 60;
    const PER_CLIENT: u8 = 8;
    let node = TestNode::builder()
        .config(&format!(
            "[limits]\nhandshake_timeout = '1h'\nconnections_per_client = {PER_CLIENT}\n"
        ))
        .arg("--pods-listen")
        .arg("127.0.0.1:0")
        .start();
    let mut connections = Vec::new();
    for number in 0..CONNECTIONS {
        let source = [127, 7, number % 5, 1 + number];
        connections.push(connect_from(source, node.pods_listen()).await);
    }
    until_ended(&connections, usize::from(CONNECTIONS - PER_CLIENT)).await;
    assert_unharmed(&node).await;
}
