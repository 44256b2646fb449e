//! Requests as clients of the original machine API put them on the wire, and the answers they act
//! on. The bytes are written out: generated types of this build would hide a wrong field number.

use bytes::{Buf, BufMut, Bytes};
use mainstay_api::common::Data;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{Event, FileInfo, VersionResponse};
use mainstay_identity::Role;
use mainstay_testkit::{TestFleet, TestNode, dead_address, soon};
use prost::Message;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder, Streaming};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// Messages as bytes, both ways.
#[derive(Clone, Copy)]
pub struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, bytes: Bytes, out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put(bytes);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(bytes.copy_to_bytes(bytes.remaining())))
    }
}

/// Calls a method of the machine service.
async fn open(
    channel: &Channel,
    method: &str,
    request: Request<Bytes>,
) -> Result<Streaming<Bytes>, Status> {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let path = format!("/machine.MachineService/{method}");
    let call = grpc.server_streaming(request, path.parse().unwrap(), Raw);
    Ok(soon(method, call).await?.into_inner())
}

/// Calls a method and reads its answer to the end.
async fn call(channel: &Channel, method: &str, request: &[u8]) -> Result<Vec<Bytes>, Status> {
    let request = Request::new(Bytes::copy_from_slice(request));
    read(open(channel, method, request).await?).await
}

async fn read(mut stream: Streaming<Bytes>) -> Result<Vec<Bytes>, Status> {
    let mut messages = Vec::new();
    while let Some(message) = soon("the answer to end", stream.message()).await? {
        messages.push(message);
    }
    Ok(messages)
}

fn string(number: u8, text: &str) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, u8::try_from(text.len()).unwrap()];
    bytes.extend_from_slice(text.as_bytes());
    bytes
}

/// A varint field of -1.
fn minus_one(number: u8) -> Vec<u8> {
    let mut bytes = vec![number << 3];
    bytes.extend_from_slice(&[0xff; 9]);
    bytes.push(1);
    bytes
}

fn flag(number: u8) -> Vec<u8> {
    vec![number << 3, 1]
}

/// `Logs` as `logs ID` asks for it: the namespace of the services, the lines from the end.
fn logs(id: &str, follow: bool, tail_lines: &[u8]) -> Vec<u8> {
    let follow = if follow { flag(4) } else { Vec::new() };
    let fields = [string(1, "system"), string(2, id), follow];
    [fields.concat(), tail_lines.to_vec()].concat()
}

async fn log_text(channel: &Channel, id: &str) -> Result<String, Status> {
    let messages = call(channel, "Logs", &logs(id, false, &minus_one(5))).await?;
    let chunks = messages.iter().map(|bytes| Data::decode(&**bytes).unwrap());
    let text = chunks.flat_map(|data| data.bytes.to_vec()).collect();
    Ok(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn a_depth_of_minus_one_lists_the_whole_tree() {
    let node = TestNode::start();
    let tree = node.scratch().join("tree");
    std::fs::create_dir_all(tree.join("a/b/c/d/e")).unwrap();
    let root = string(1, tree.to_str().unwrap());
    let request = [root, flag(2), minus_one(3)].concat();
    let entries = call(&node.connect().await, "List", &request).await.unwrap();
    let names = entries
        .iter()
        .map(|bytes| FileInfo::decode(&**bytes).unwrap());
    let names: Vec<String> = names.map(|info| info.relative_name).collect();
    let whole = [".", "a", "a/b", "a/b/c", "a/b/c/d", "a/b/c/d/e"];
    assert_eq!(names, whole);
}

#[tokio::test]
async fn every_stream_of_events_begins_with_an_empty_one() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let requests = [
        Vec::new(),
        minus_one(1),
        [3 << 3, 60].to_vec(),
        string(4, "no-such-actor"),
    ];
    for request in requests {
        let request = Request::new(Bytes::from(request));
        let mut events = open(&channel, "Events", request).await.unwrap();
        let hello = soon("the hello", events.message()).await.unwrap().unwrap();
        assert!(hello.is_empty(), "no data, no id: {hello:?}");
    }
}

#[tokio::test]
async fn events_of_other_actors_are_left_out() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let until_now = [0xa0, 0x06, 1].to_vec();
    let all = [minus_one(1), until_now.clone()].concat();
    let all = call(&channel, "Events", &all).await.unwrap();
    assert!(all.len() > 1, "the node has events of its own");
    for bytes in &all[1..] {
        assert_eq!(Event::decode(&**bytes).unwrap().actor_id, "");
    }
    let of_actor = [minus_one(1), string(4, "an-actor"), until_now].concat();
    let of_actor = call(&channel, "Events", &of_actor).await.unwrap();
    assert_eq!(of_actor, [Bytes::new()], "the hello, and no other's event");
}

#[tokio::test]
async fn the_daemon_s_log_has_the_names_of_the_daemons_it_replaces() {
    let node = TestNode::start();
    let channel = node.connect().await;
    for id in ["machined", "apid", "osd", "mainstay"] {
        let text = log_text(&channel, id).await.unwrap();
        assert!(text.contains(" INFO starting "), "{id}: {text}");
    }
    // Elsewhere the names mean what the runtime calls so.
    let request = [string(1, "mainstay"), string(2, "apid"), minus_one(5)].concat();
    let status = call(&channel, "Logs", &request).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound, "{status}");
}

/// Writes a record to the kernel's log, and returns its text, which no other test writes.
fn write_to_kernel_log(name: &str) -> String {
    let now = jiff::Timestamp::now().as_nanosecond();
    let text = format!("mainstay-test-talos-{name}-{}-{now}", std::process::id());
    std::fs::write("/dev/kmsg", format!("<13>{text}\n")).unwrap();
    text
}

#[tokio::test]
async fn the_kernel_log_is_a_log_like_any_other() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let first = write_to_kernel_log("first");
    let all = log_text(&channel, "kernel").await.unwrap();
    let line = all.lines().find(|line| line.contains(&first)).unwrap();
    assert!(line.starts_with("user:  notice: [20"), "{line}");

    let request = Request::new(Bytes::from(logs("kernel", true, &[])));
    let mut following = open(&channel, "Logs", request).await.unwrap();
    let second = write_to_kernel_log("second");
    let mut seen = String::new();
    soon("the new record", async {
        while !seen.contains(&second) {
            let bytes = following.message().await.unwrap().unwrap();
            let data = Data::decode(bytes).unwrap();
            seen.push_str(&String::from_utf8_lossy(&data.bytes));
        }
    })
    .await;
    assert!(!seen.contains(&first), "only what is new: {seen}");

    // Others may write meanwhile, so that the last lines are not known exactly.
    for lines in [1_u8, 2] {
        let request = logs("kernel", false, &[5 << 3, lines]);
        let messages = call(&channel, "Logs", &request).await.unwrap();
        let data = messages.iter().map(|bytes| Data::decode(&**bytes).unwrap());
        let text: Vec<u8> = data.flat_map(|data| data.bytes.to_vec()).collect();
        let count = text.iter().filter(|byte| **byte == b'\n').count();
        assert_eq!(count, usize::from(lines), "{text:?}");
    }
    let ids = MachineServiceClient::new(channel).logs_containers(()).await;
    let ids = ids.unwrap().into_inner().messages.remove(0).ids;
    assert!(ids.contains(&"kernel".to_owned()), "{ids:?}");
}

#[tokio::test]
async fn errors_have_the_words_that_clients_match() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let restart = [string(1, "mainstay"), string(2, "no/such")].concat();
    let status = call(&channel, "Restart", &restart).await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    assert_eq!(status.message(), "container \"no/such\" not found");
    let status = log_text(&channel, "no-such").await.unwrap_err();
    assert_eq!(status.code(), Code::NotFound);
    let words = "log \"no-such\" was not registered";
    assert!(status.message().starts_with(words), "{status}");
    let status = call(&channel, "DiskUsage", &[]).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
}

#[tokio::test]
async fn a_node_that_fails_is_reported_with_the_code_before_the_text() {
    let fleet = TestFleet::to_anywhere(1);
    let channel = fleet.nodes[0].connect().await;
    let (own, dead) = (fleet.names()[0].clone(), dead_address().to_string());
    let mut request = Request::new(Bytes::new());
    for node in [&own, &dead] {
        let value = node.parse().unwrap();
        request.metadata_mut().append("nodes", value);
    }
    let reply = read(open(&channel, "Version", request).await.unwrap()).await;
    let reply = VersionResponse::decode(reply.unwrap().remove(0)).unwrap();
    let of = |name: &str| {
        let metadata = reply.messages.iter().map(|message| &message.metadata);
        let mut metadata = metadata.map(|metadata| metadata.clone().unwrap());
        metadata.find(|metadata| metadata.hostname == name).unwrap()
    };
    assert_eq!((of(&own).error.as_str(), of(&own).status), ("", None));
    let failed = of(&dead);
    let status = failed.status.unwrap();
    assert_eq!(status.code, Code::Unavailable as i32);
    let expected = format!("rpc error: code = Unavailable desc = {}", status.message);
    assert_eq!(failed.error, expected);
    assert!(!status.message.starts_with("rpc error"), "{status:?}");
}

#[tokio::test]
async fn the_version_tells_that_roles_decide() {
    let node = TestNode::start();
    let alice = node.credentials("alice", &[Role::Reader]);
    let channel = node.connect_as(&alice).await;
    let reply = call(&channel, "Version", &[]).await.unwrap().remove(0);
    // Field 4 of the message: {rbac: true}.
    let features = [4 << 3 | 2, 2, 1 << 3, 1];
    assert!(reply.windows(4).any(|bytes| bytes == features), "{reply:?}");
}
