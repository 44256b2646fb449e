//! The nodes that calls are forwarded to, and what is checked again where they arrive.

use mainstay_api::common::Metadata;
use mainstay_api::machine::ReadRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_identity::{CertificateInfo, Role};
use mainstay_testkit::{TestFleet, TestNode, to_nodes};
use tonic::transport::Channel;
use tonic::{Code, Request};

async fn machine(node: &TestNode) -> MachineServiceClient<Channel> {
    MachineServiceClient::new(node.connect().await)
}

fn to_node<T>(message: T, node: &str) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert("node", node.parse().unwrap());
    request
}

/// Returns the metadata of each node, in the order of the names.
async fn ask(client: &mut MachineServiceClient<Channel>, names: &[String]) -> Vec<Metadata> {
    let reply = client.version(to_nodes((), names)).await.unwrap();
    let mut said: Vec<_> = reply
        .into_inner()
        .messages
        .into_iter()
        .map(|message| {
            let metadata = message.metadata.unwrap();
            assert_eq!(message.version.is_some(), metadata.error.is_empty());
            metadata
        })
        .collect();
    said.sort_by_key(|metadata| names.iter().position(|name| *name == metadata.hostname));
    said
}

#[tokio::test]
async fn only_peers_are_targets_unless_the_configuration_says_otherwise() {
    let fleet = TestFleet::start(2);
    let first = &fleet.nodes[0];
    // Nothing must be connected to: a connection would wake the listener.
    let stranger = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let stranger_name = stranger.local_addr().unwrap().to_string();
    let mut client = machine(first).await;
    let own = format!("127.0.0.1:{}", first.listen().port());
    let by_address = fleet.names()[1].clone();
    let names = [own, "n1".to_owned(), by_address.clone(), stranger_name];

    let refused = |metadata: &Metadata, key: &str| {
        let said = &metadata.error;
        assert!(said.contains("no request forwarding"), "{said}");
        assert!(
            said.contains("forwarding.targets") && said.contains(key),
            "{said}"
        );
        let code = metadata.status.as_ref().unwrap().code;
        assert_eq!(code, Code::PermissionDenied as i32);
    };
    let said = ask(&mut client, &names).await;
    // The certificate of the peer has its address and its name of the test, n1.
    assert!(said[..3].iter().all(|m| m.error.is_empty()), "{said:?}");
    refused(&said[3], "[peers]");
    let status = client.version(to_node((), &names[3])).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(
        status.message().contains("no request forwarding"),
        "{status}"
    );
    client.version(to_node((), "n1")).await.unwrap();

    for off in [
        "[forwarding]\ntargets = 'off'\n",
        "[fleet]\nforwarding = false\n",
    ] {
        first.reload(&format!("{off}{}", fleet.peers()));
        let said = ask(&mut client, &names).await;
        assert_eq!(said[0].error, "");
        said[1..]
            .iter()
            .for_each(|metadata| refused(metadata, "\"peers\""));
        let status = client.version(to_node((), "n1")).await.unwrap_err();
        assert_eq!(status.code(), Code::PermissionDenied);
    }
    let would_block = stranger.accept().unwrap_err().kind();
    assert_eq!(would_block, std::io::ErrorKind::WouldBlock);

    first.reload("[forwarding]\ntargets = 'any'\n[fleet]\nconnect_timeout = '1s'\n");
    let said = ask(&mut client, &[by_address, names[3].clone()]).await;
    assert_eq!(said[0].error, "");
    assert!(said[1].error.contains("cannot be reached"), "{said:?}");
    stranger.accept().unwrap();
}

#[tokio::test]
async fn a_certificate_revoked_on_the_answering_node_is_refused_there() {
    let fleet = TestFleet::start(2);
    let there = fleet.names()[1].clone();
    let rita = fleet.nodes[0].credentials("rita", &[Role::Reader]);
    let serial = |pem: &str| CertificateInfo::from_pem(pem).unwrap().serial;
    let revoked = serial(&rita.identity.as_ref().unwrap().0);
    let mut client = MachineServiceClient::new(fleet.nodes[0].connect_as(&rita).await);
    client.version(to_node((), &there)).await.unwrap();

    let nodes = fleet.nodes;
    let [first, second] = <[TestNode; 2]>::try_from(nodes).ok().unwrap();
    let listen = second.listen().to_string();
    let second = second
        .into_builder()
        .config(&format!("[identity]\nrevoked = ['{revoked}']\n"))
        .arg("--listen")
        .arg(&listen)
        .start();
    // The first node does not know of it; the second does.
    first.wait_for_log("rita (os:reader)");
    let reached = async |client: &mut MachineServiceClient<Channel>| loop {
        // Until the connection that the restart has closed is made anew.
        match client.version(to_node((), &there)).await {
            Err(status) if status.code() == Code::Unavailable => {}
            answered => return answered,
        }
    };
    let status = mainstay_testkit::soon("an answer", reached(&mut client))
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("revoked"), "{status}");
    assert!(status.message().contains(&revoked), "{status}");
    let other = first.credentials("other", &[Role::Reader]);
    let mut client = MachineServiceClient::new(first.connect_as(&other).await);
    reached(&mut client).await.unwrap();
    drop(second);
}

#[tokio::test]
async fn max_role_limits_what_a_node_asserts() {
    let fleet = TestFleet::start(2);
    let there = fleet.names()[1].clone();
    let nodes = fleet.nodes;
    let [first, second] = <[TestNode; 2]>::try_from(nodes).ok().unwrap();
    let listen = second.listen().to_string();
    let second = second
        .into_builder()
        .config("")
        .arg("--listen")
        .arg(&listen);
    let second = second.start();
    let mut client = machine(&first).await;
    let read = || ReadRequest {
        path: "/etc/hostname".to_owned(),
    };
    let address = first.listen();
    for (config, allowed) in [
        (String::new(), true),
        // By the address in its certificate, for one peer and for all that have no entry.
        (
            format!("[peers]\nentry = {{ address = '{address}', max_role = 'os:reader' }}\n"),
            false,
        ),
        ("[forwarding]\nmax_role = 'os:operator'\n".to_owned(), false),
        (
            format!(
                "[forwarding]\nmax_role = 'os:reader'\n[peers]\n\
                 entry = {{ address = '{address}', max_role = 'os:admin' }}\n"
            ),
            true,
        ),
    ] {
        second.reload(&config);
        let answered = mainstay_testkit::soon("an answer", async {
            loop {
                match client.read(to_node(read(), &there)).await {
                    Err(status) if status.code() == Code::Unavailable => {}
                    answered => return answered,
                }
            }
        })
        .await;
        match answered {
            Ok(_) => assert!(allowed, "{config}"),
            Err(status) => {
                assert!(!allowed, "{config}: {status}");
                assert_eq!(status.code(), Code::PermissionDenied);
                assert!(status.message().contains("max_role"), "{status}");
            }
        }
        // A reader's calls are not concerned.
        client.version(to_node((), &there)).await.unwrap();
    }
}
