//! Clients of the lineage of cells that came later: their services, and the name they expect a
//! node to have.

use mainstay_api::aurae::discovery::v0::DiscoverRequest;
use mainstay_api::aurae::discovery::v0::discovery_service_client::DiscoveryServiceClient;
use mainstay_api::aurae::observe::v0::GetAuraeDaemonLogStreamRequest;
use mainstay_api::aurae::observe::v0::observe_service_client::ObserveServiceClient;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::runtime::ListCellsRequest;
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_identity::{Role, tls};
use mainstay_testkit::{Credentials, TestFleet, TestNode, connect_over, soon, to_nodes};
use rustix::process::Signal;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::{Code, Request};

use crate::daemon::wait_for_event;

/// Asks under the name that these clients insist on, whatever the node's address.
async fn discover(node: &TestNode, credentials: &Credentials) -> Result<(bool, String), String> {
    let (cert, key) = credentials.identity.as_ref().unwrap();
    let config = tls::client_config(&credentials.ca, Some((cert, key))).unwrap();
    let name = ServerName::try_from("server.unsafe.aurae.io").unwrap();
    let stream = TcpStream::connect(node.listen()).await.unwrap();
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| tls::explain(&error).unwrap_or_default())?;
    let mut client = DiscoveryServiceClient::new(connect_over(stream).await.unwrap());
    let answer = client.discover(DiscoverRequest {}).await.unwrap();
    let answer = answer.into_inner();
    Ok((answer.healthy, answer.version))
}

#[tokio::test]
async fn the_compatibility_name_is_in_the_certificate_only_when_enabled() {
    let node = TestNode::builder()
        .config("[compatibility]\naurae = false\n")
        .start();
    let reader = node.credentials("reader", &[Role::Reader]);
    let said = discover(&node, &reader).await.unwrap_err();
    assert!(said.contains("server.unsafe.aurae.io"), "{said}");

    std::fs::write(node.config_file(), "[compatibility]\naurae = true\n").unwrap();
    let renewed = wait_for_event(&node, "node certificate renewed").await;
    node.signal(Signal::HUP);
    renewed.await.unwrap();
    let version = env!("CARGO_PKG_VERSION").to_owned();
    assert_eq!(discover(&node, &reader).await, Ok((true, version)));
    // The names it had before are still there.
    node.cli().run(["version"]).ok();
}

#[tokio::test]
async fn a_node_started_with_it_enabled_has_the_name_from_the_start() {
    let node = TestNode::builder()
        .config("[compatibility]\naurae = true\n")
        .start();
    assert!(discover(&node, &node.admin()).await.is_ok());
}

#[tokio::test]
async fn the_daemon_s_log_comes_wrapped_and_live() {
    let node = TestNode::start();
    let mut observe = ObserveServiceClient::new(node.connect().await);
    let mut items = observe
        .get_aurae_daemon_log_stream(GetAuraeDaemonLogStreamRequest {})
        .await
        .unwrap()
        .into_inner();
    let first = soon("the first line", items.message()).await.unwrap();
    let first = first.unwrap().item.unwrap();
    assert_eq!(first.channel, "daemon");
    assert!(first.line.contains("starting"), "{}", first.line);
    assert!(first.timestamp > 1_700_000_000, "unix seconds");

    let mut machine = MachineServiceClient::new(node.connect().await);
    machine.version(()).await.unwrap();
    soon("the call's own line", async {
        while let Some(answer) = items.message().await.unwrap() {
            if answer.item.unwrap().line.contains("/Version") {
                return;
            }
        }
        panic!("the stream ended");
    })
    .await;
}

#[tokio::test]
async fn a_call_without_metadata_field_is_forwarded_to_one_node_only() {
    let fleet = TestFleet::start(2);
    let there = fleet.names()[1].clone();
    let channel = fleet.nodes[0].connect().await;

    let mut discovery = DiscoveryServiceClient::new(channel.clone());
    let mut request = Request::new(DiscoverRequest {});
    let node = there.parse().unwrap();
    request.metadata_mut().insert("node", node);
    let answer = discovery.discover(request).await.unwrap().into_inner();
    assert!(answer.healthy);
    let many = to_nodes(DiscoverRequest {}, [&there]);
    let status = discovery.discover(many).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("`node`"), "{status}");

    let mut cells = CellServiceClient::new(channel);
    let many = to_nodes(ListCellsRequest::default(), [&there]);
    let status = cells.list(many).await.unwrap_err();
    assert_eq!(status.code(), Code::Unimplemented);
    assert!(status.message().contains("`node`"), "{status}");
}
