//! One call, many nodes, through the node the client is connected to.

mod command_line;
mod targets;

use std::collections::BTreeMap;

use mainstay_api::common::Metadata;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{EventsRequest, ListRequest, LogsRequest, ReadRequest};
use mainstay_identity::{CertificateInfo, Role};
use mainstay_testkit::{ANY_TARGET, TestFleet, TestNode, dead_address, soon, to_nodes};
use tokio_stream::StreamExt;
use tonic::transport::Channel;
use tonic::{Code, Request};

async fn machine(node: &TestNode) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(node.connect().await)
}

fn hostname(metadata: Option<&Metadata>) -> String {
    metadata.map(|m| m.hostname.clone()).unwrap_or_default()
}

/// The file through which a test sees which node really answered: each has its own state.
fn whose(node: &TestNode) -> String {
    node.state().join("pki/node.crt").display().to_string()
}

#[tokio::test]
async fn every_node_answers_under_the_name_the_client_gave_it() {
    let fleet = TestFleet::start(3);
    let mut machine = machine(&fleet.nodes[0]).await;
    let request = to_nodes((), fleet.names());
    let reply = machine.processes(request).await.unwrap().into_inner();
    let mut answered: Vec<_> = reply
        .messages
        .iter()
        .map(|message| hostname(message.metadata.as_ref()))
        .collect();
    answered.sort();
    let mut asked = fleet.names();
    asked.sort();
    assert_eq!(answered, asked);
    // Each is a whole answer: this machine's processes, with the nodes among them.
    for message in &reply.messages {
        let pids: Vec<_> = message.processes.iter().map(|p| p.pid).collect();
        for node in &fleet.nodes {
            assert!(pids.contains(&node.pid().cast_signed()));
        }
    }
}

#[tokio::test]
async fn one_value_of_nodes_is_merged_and_one_of_node_is_passed_on_as_it_is() {
    let fleet = TestFleet::start(2);
    let mut machine = machine(&fleet.nodes[0]).await;
    let there = fleet.names()[1].clone();

    let reply = machine.version(to_nodes((), [&there])).await.unwrap();
    let messages = reply.into_inner().messages;
    assert_eq!(messages.len(), 1);
    assert_eq!(hostname(messages[0].metadata.as_ref()), there);

    let mut request = Request::new(ReadRequest {
        path: whose(&fleet.nodes[1]),
    });
    request
        .metadata_mut()
        .insert("node", there.parse().unwrap());
    let mut stream = machine.read(request).await.unwrap().into_inner();
    let data = stream.next().await.unwrap().unwrap();
    assert_eq!(data.metadata, None);
    assert!(data.bytes.starts_with(b"-----BEGIN CERTIFICATE-----"));

    let mut request = Request::new(());
    request
        .metadata_mut()
        .insert("node", there.parse().unwrap());
    let reply = machine.version(request).await.unwrap().into_inner();
    assert_eq!(reply.messages[0].metadata, None);
    // What cannot be merged can be passed on.
    let mut health =
        tonic_health::pb::health_client::HealthClient::new(fleet.nodes[0].connect().await);
    let mut request = Request::new(tonic_health::pb::HealthCheckRequest::default());
    request
        .metadata_mut()
        .insert("node", there.parse().unwrap());
    assert_eq!(health.check(request).await.unwrap().into_inner().status, 1);
    let request = to_nodes(tonic_health::pb::HealthCheckRequest::default(), [&there]);
    let status = health.check(request).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
}

#[tokio::test]
async fn the_node_itself_answers_through_the_merge_under_any_of_its_names() {
    let node = TestNode::start();
    let mut machine = machine(&node).await;
    let port = node.listen().port();
    let name = hostname_of_this_machine();
    for own in [
        name.clone(),
        format!("{name}:{port}"),
        "127.0.0.1".to_owned(),
        format!("127.0.0.1:{port}"),
    ] {
        let reply = machine.version(to_nodes((), [&own])).await.unwrap();
        let messages = reply.into_inner().messages;
        assert_eq!(messages.len(), 1, "{own}");
        let metadata = messages[0].metadata.clone().unwrap();
        assert_eq!(metadata.hostname, own);
        assert_eq!(metadata.error, "", "{own}");
        assert!(messages[0].version.is_some());
    }
    // The same name twice is asked twice, and another port is another node, which is no peer.
    let elsewhere = format!("127.0.0.1:{}", dead_address().port());
    let reply = machine
        .version(to_nodes((), ["127.0.0.1", "127.0.0.1", &elsewhere]))
        .await
        .unwrap();
    let messages = reply.into_inner().messages;
    assert_eq!(messages.len(), 3);
    let failed: Vec<_> = messages.iter().filter(|m| m.version.is_none()).collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(hostname(failed[0].metadata.as_ref()), elsewhere);
}

fn hostname_of_this_machine() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_owned()
}

#[tokio::test]
async fn a_dead_node_is_one_message_and_the_others_are_unaffected() {
    let mut fleet = TestFleet::to_anywhere(3);
    let mut names = fleet.names();
    names.push(dead_address().to_string());
    let mut machine = machine(&fleet.nodes[0]).await;
    let reply = machine.memory(to_nodes((), &names)).await.unwrap();
    let messages = reply.into_inner().messages;
    assert_eq!(messages.len(), 4);
    for message in &messages {
        let metadata = message.metadata.clone().unwrap();
        if metadata.hostname == names[3] {
            assert!(message.meminfo.is_none());
            assert!(metadata.error.contains("cannot be reached"), "{metadata:?}");
            assert_eq!(metadata.status.unwrap().code, Code::Unavailable as i32);
        } else {
            assert_eq!(metadata.error, "");
            assert!(message.meminfo.unwrap().memtotal > 0);
        }
    }

    // One that dies with its connection in the pool, and comes back.
    fleet.nodes[2].kill();
    let reply = machine.memory(to_nodes((), &names[..3])).await.unwrap();
    let failed: Vec<_> = reply
        .into_inner()
        .messages
        .into_iter()
        .filter(|message| message.meminfo.is_none())
        .map(|message| hostname(message.metadata.as_ref()))
        .collect();
    assert_eq!(failed, [names[2].clone()]);
    let dead = fleet.nodes.pop().unwrap();
    let listen = dead.listen().to_string();
    let _back = dead.into_builder().arg("--listen").arg(&listen).start();
    soon("the node to be reached again", async {
        loop {
            let reply = machine.memory(to_nodes((), [&names[2]])).await.unwrap();
            if reply.into_inner().messages[0].meminfo.is_some() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn streams_are_interleaved_with_each_nodes_order_kept() {
    let fleet = TestFleet::to_anywhere(3);
    let mut machine = machine(&fleet.nodes[0]).await;
    let request = ListRequest {
        root: "/usr/share/doc".to_owned(),
        recurse: true,
        ..ListRequest::default()
    };
    let mut alone = Vec::new();
    let mut stream = machine.list(request.clone()).await.unwrap().into_inner();
    while let Some(info) = stream.next().await {
        alone.push(info.unwrap().relative_name);
    }
    assert!(alone.len() > 500, "a tree worth the name");

    let mut of_each: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let dead = dead_address().to_string();
    let mut names = fleet.names();
    names.push(dead.clone());
    let request = to_nodes(request, &names);
    let mut stream = machine.list(request).await.unwrap().into_inner();
    while let Some(info) = stream.next().await {
        let info = info.unwrap();
        let metadata = info.metadata.unwrap();
        if metadata.hostname == dead {
            assert!(metadata.error.contains("cannot be reached"));
            assert!(info.name.is_empty());
        } else {
            assert_eq!(metadata.error, "");
        }
        of_each
            .entry(metadata.hostname)
            .or_default()
            .push(info.relative_name);
    }
    assert_eq!(of_each.remove(&dead).unwrap().len(), 1);
    assert_eq!(of_each.len(), 3);
    for (node, names) in of_each {
        assert_eq!(names, alone, "{node}");
    }
}

#[tokio::test]
async fn a_node_that_refuses_ends_its_part_of_the_stream_with_one_message() {
    let fleet = TestFleet::start(2);
    let mut machine = machine(&fleet.nodes[0]).await;
    let request = LogsRequest {
        namespace: "system".to_owned(),
        id: "nothing".to_owned(),
        tail_lines: -1,
        ..LogsRequest::default()
    };
    let mut stream = machine
        .logs(to_nodes(request, fleet.names()))
        .await
        .unwrap()
        .into_inner();
    let mut said = Vec::new();
    while let Some(data) = stream.next().await {
        let data = data.unwrap();
        assert!(data.bytes.is_empty());
        let metadata = data.metadata.unwrap();
        let text = metadata
            .error
            .strip_prefix("rpc error: code = NotFound desc = ")
            .unwrap();
        assert!(
            text.starts_with("log \"nothing\" was not registered"),
            "{text}"
        );
        let status = metadata.status.unwrap();
        assert_eq!(status.code, Code::NotFound as i32);
        assert_eq!(status.message, text);
        said.push(metadata.hostname);
    }
    said.sort();
    let mut names = fleet.names();
    names.sort();
    assert_eq!(said, names);
}

#[tokio::test]
async fn a_stream_goes_on_when_one_of_its_nodes_goes_away() {
    let mut fleet = TestFleet::start(3);
    let mut machine = machine(&fleet.nodes[0]).await;
    let history = EventsRequest {
        tail_events: 1,
        ..EventsRequest::default()
    };
    let request = to_nodes(history, fleet.names());
    let mut stream = machine.events(request).await.unwrap().into_inner();
    let gone = fleet.names()[2].clone();
    let staying = fleet.names()[1].clone();
    soon("the event that has happened on the node", async {
        loop {
            let event = stream.next().await.unwrap().unwrap();
            if hostname(event.metadata.as_ref()) == gone && event.data.is_some() {
                return;
            }
        }
    })
    .await;
    fleet.nodes[2].kill();
    let last = soon("the last word of the node that went", async {
        loop {
            let event = stream.next().await.unwrap().unwrap();
            if hostname(event.metadata.as_ref()) == gone {
                return event.metadata.unwrap();
            }
        }
    })
    .await;
    assert!(last.error.contains("lost"), "{last:?}");
    // The other's events still come.
    fleet.nodes[1].signal(rustix::process::Signal::HUP);
    soon("an event of the node that stayed", async {
        loop {
            let event = stream.next().await.unwrap().unwrap();
            if hostname(event.metadata.as_ref()) == staying && event.data.is_some() {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn roles_are_carried_and_only_nodes_may_state_them() {
    let fleet = TestFleet::start(2);
    let there = fleet.names()[1].clone();
    let read = |path: &str| ReadRequest {
        path: path.to_owned(),
    };

    // A reader may not read files: here it is refused before anything is forwarded.
    let reader = fleet.nodes[0].credentials("rita", &[Role::Reader]);
    let mut machine = MachineServiceClient::new(fleet.nodes[0].connect_as(&reader).await);
    let status = machine
        .read(to_nodes(read("/etc/hostname"), [&there]))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    machine.version(to_nodes((), [&there])).await.unwrap();
    // The node that answers knows for whom.
    fleet.nodes[1].wait_for_log("rita (os:reader) through node ");
    fleet.nodes[0].wait_for_log(&format!("nodes={there:?} who=\"rita (os:reader)\""));

    // Nobody gets a role by saying so, at either node.
    for node in &fleet.nodes {
        let mut machine = MachineServiceClient::new(node.connect_as(&reader).await);
        let mut request = Request::new(read("/etc/hostname"));
        request
            .metadata_mut()
            .insert("mainstay-role", "os:admin".parse().unwrap());
        request
            .metadata_mut()
            .insert("proxyfrom", "n1".parse().unwrap());
        let status = machine.read(request).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
        assert!(status.message().contains("not authorized"), "{status}");
    }
    // What a client says of itself is not passed on: the node states what it knows.
    let mut request = to_nodes((), [&there]);
    request
        .metadata_mut()
        .insert("mainstay-role", "os:admin".parse().unwrap());
    let status = machine.version(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);

    // A node's own certificate alone is good for nothing.
    let own = std::fs::read_to_string(fleet.nodes[0].state().join("pki/node.crt")).unwrap();
    let key = std::fs::read_to_string(fleet.nodes[0].state().join("pki/node.key")).unwrap();
    let node = mainstay_testkit::Credentials {
        ca: fleet.nodes[0].ca(),
        identity: Some((own, mainstay_identity::PrivateKeyPem::new(key))),
    };
    let mut as_node = MachineServiceClient::new(fleet.nodes[1].connect_as(&node).await);
    let status = as_node.version(()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn proxyfrom_means_answer_here() {
    let node = TestNode::start();
    let mut machine = machine(&node).await;
    let mut request = to_nodes((), ["198.51.100.1"]);
    request
        .metadata_mut()
        .insert("proxyfrom", "n1".parse().unwrap());
    let reply = machine.version(request).await.unwrap().into_inner();
    assert_eq!(reply.messages.len(), 1);
    assert_eq!(reply.messages[0].metadata, None);
}

#[tokio::test]
async fn bad_node_names_are_refused_and_no_node_is_called() {
    let node = TestNode::start();
    let mut machine = machine(&node).await;
    for bad in [
        "", " ", "a b", "a,b", ":1", "a:0", "a:99999", "[::1", "http://a", "-",
    ] {
        let status = machine.version(to_nodes((), [bad])).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{bad:?}");
        assert!(status.message().contains("name a node"), "{status}");
        let mut request = Request::new(());
        request.metadata_mut().insert("node", bad.parse().unwrap());
        let status = machine.version(request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{bad:?}");
    }
    let mut request = Request::new(());
    request.metadata_mut().append("node", "a".parse().unwrap());
    request.metadata_mut().append("node", "b".parse().unwrap());
    let status = machine.version(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    machine.version(()).await.unwrap();
}

#[tokio::test]
async fn peers_are_called_by_the_names_the_configuration_gives_them() {
    let fleet = TestFleet::to_anywhere(2);
    let mut machine = machine(&fleet.nodes[0]).await;
    let status = |reply: mainstay_api::machine::VersionResponse| {
        reply.messages[0].metadata.clone().unwrap().error
    };
    let reply = machine
        .version(to_nodes((), ["db-1.invalid"]))
        .await
        .unwrap();
    assert!(status(reply.into_inner()).contains("[peers]"));
    let config = format!("[peers]\n'db-1.invalid' = '{}'\n", fleet.names()[1]);
    let first = fleet.nodes.into_iter().collect::<Vec<_>>();
    let [first, second] = <[TestNode; 2]>::try_from(first).ok().unwrap();
    let first = first.into_builder().config(&config).start();
    let mut machine = MachineServiceClient::new(first.connect().await);
    let reply = machine
        .version(to_nodes((), ["DB-1.invalid"]))
        .await
        .unwrap();
    let messages = reply.into_inner().messages;
    assert_eq!(hostname(messages[0].metadata.as_ref()), "DB-1.invalid");
    assert!(messages[0].version.is_some());
    drop(second);
}

#[tokio::test]
async fn a_node_with_a_revoked_certificate_is_not_trusted() {
    let fleet = TestFleet::start(2);
    let there = fleet.names()[1].clone();
    let mut machine = machine(&fleet.nodes[0]).await;
    let reply = machine.version(to_nodes((), [&there])).await.unwrap();
    assert!(reply.into_inner().messages[0].version.is_some());

    let pem = std::fs::read_to_string(whose(&fleet.nodes[1])).unwrap();
    let serial = CertificateInfo::from_pem(&pem).unwrap().serial;
    let config = format!("[identity]\nrevoked = ['{serial}']\n{}", fleet.peers());
    fleet.nodes[0].reload(&config);
    // Also on the connection that was there.
    let reply = machine.version(to_nodes((), [&there])).await.unwrap();
    let metadata = reply.into_inner().messages[0].metadata.clone().unwrap();
    assert!(metadata.error.contains("revoked"), "{metadata:?}");
}

#[tokio::test]
async fn a_node_of_another_ca_is_not_trusted() {
    let ours = TestNode::builder().config(ANY_TARGET).start();
    let stranger = TestNode::start();
    let mut machine = machine(&ours).await;
    let name = stranger.listen().to_string();
    let reply = machine.version(to_nodes((), [&name])).await.unwrap();
    let metadata = reply.into_inner().messages[0].metadata.clone().unwrap();
    assert!(
        metadata.error.contains("not signed by the CA"),
        "{metadata:?}"
    );
}
