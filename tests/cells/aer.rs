//! `aer`, the original client of `aurae.*.v0`: mTLS over a unix socket, under its own server name.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hyper_util::rt::TokioIo;
use mainstay_api::aurae::cells::v0::cell_service_client::CellServiceClient;
use mainstay_api::aurae::cells::v0::{
    Cell, CellServiceAllocateRequest, CellServiceFreeRequest, CellServiceListRequest,
    CellServiceStartRequest, CellServiceStopRequest, Executable,
};
use mainstay_api::aurae::discovery::v0::DiscoverRequest;
use mainstay_api::aurae::discovery::v0::discovery_service_client::DiscoveryServiceClient;
use mainstay_identity::{PrivateKeyPem, Role, tls};
use mainstay_testkit::{Credentials, TestNode, connect_unix};
use rustls_pki_types::ServerName;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio_rustls::TlsConnector;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::cell_node::CellNode;

/// A node with the socket, in a directory that does not exist before.
fn start(name: &str) -> (CellNode, TempDir) {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("aurae/aurae.sock");
    let section = format!("[compatibility]\naurae_socket = {path:?}\n");
    let node = CellNode::start_with(name, TestNode::builder(), &section);
    (node, dir)
}

fn socket(dir: &TempDir) -> std::path::PathBuf {
    dir.path().join("aurae/aurae.sock")
}

/// Connects as `aer` does: its server name, and a URI that is no address.
async fn connect(path: &Path, credentials: &Credentials) -> Result<Channel, String> {
    let identity = credentials.identity.as_ref();
    let identity = identity.map(|(cert, key)| (cert.as_str(), key));
    let config = tls::client_config(&credentials.ca, identity).unwrap();
    let name = ServerName::try_from("server.unsafe.aurae.io").unwrap();
    let stream = UnixStream::connect(path).await.unwrap();
    let stream = TlsConnector::from(config).connect(name, stream).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let mut stream = Some(TokioIo::new(stream));
    let once = tower::service_fn(move |_| {
        let stream = stream.take();
        async move { stream.ok_or_else(|| std::io::Error::other("connection lost")) }
    });
    let endpoint = Endpoint::from_static("hxxp://null");
    let channel = endpoint.connect_with_connector(once).await;
    channel.map_err(|error| format!("{error:?}"))
}

/// The files that the documentation has an operator create.
fn credentials_from_pem(node: &CellNode, dir: &TempDir) -> Credentials {
    let pem = dir.path().join("pki");
    let cli = node.node.cli();
    let pki = node.node.state().join("pki");
    cli.run([
        "pki",
        "client",
        "--name",
        "nova",
        "--role",
        "os:admin",
        "--ca",
        pki.to_str().unwrap(),
        "--pem",
        pem.to_str().unwrap(),
    ])
    .ok();
    let read = |name: &str| std::fs::read_to_string(pem.join(name)).unwrap();
    let key = PrivateKeyPem::new(read("client.key"));
    Credentials {
        ca: read("ca.crt"),
        identity: Some((read("client.crt"), key)),
    }
}

#[tokio::test]
async fn aer_s_calls_work_over_mtls_on_the_unix_socket() {
    let (node, dir) = start("aer-calls");
    let credentials = credentials_from_pem(&node, &dir);
    let channel = connect(&socket(&dir), &credentials).await.unwrap();

    let mut discovery = DiscoveryServiceClient::new(channel.clone());
    let answer = discovery.discover(DiscoverRequest {}).await.unwrap();
    assert!(answer.into_inner().healthy);

    let mut cells = CellServiceClient::new(channel);
    let cell = Cell {
        name: "aer".to_owned(),
        isolate_process: true,
        ..Cell::default()
    };
    let request = CellServiceAllocateRequest { cell: Some(cell) };
    let allocated = cells.allocate(request).await.unwrap().into_inner();
    assert_eq!(allocated.cell_name, "aer");
    let request = CellServiceStartRequest {
        cell_name: Some("aer".to_owned()),
        executable: Some(Executable {
            name: "sleeper".to_owned(),
            command: "sleep 400".to_owned(),
            description: String::new(),
        }),
        ..CellServiceStartRequest::default()
    };
    let started = cells.start(request).await.unwrap().into_inner();
    assert!(started.pid > 0);
    let list = cells.list(CellServiceListRequest {}).await.unwrap();
    assert_eq!(list.into_inner().cells.len(), 1);
    let request = CellServiceStopRequest {
        cell_name: Some("aer".to_owned()),
        executable_name: "sleeper".to_owned(),
    };
    cells.stop(request).await.unwrap();
    let request = CellServiceFreeRequest {
        cell_name: "aer".to_owned(),
    };
    cells.free(request).await.unwrap();
    node.finish().await;
}

#[tokio::test]
async fn on_that_socket_the_certificate_is_the_identity() {
    let (node, dir) = start("aer-identity");
    let path = socket(&dir);
    let mode = std::fs::metadata(&path).unwrap().mode();
    assert_eq!(mode & 0o777, 0o666, "users with a certificate may connect");

    // The peer is root, but its certificate is a reader's.
    let reader = node.node.credentials("reader", &[Role::Reader]);
    let channel = connect(&path, &reader).await.unwrap();
    let mut cells = CellServiceClient::new(channel);
    cells.list(CellServiceListRequest {}).await.unwrap();
    let request = CellServiceFreeRequest {
        cell_name: "aer".to_owned(),
    };
    let status = cells.free(request).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(
        status.message().contains("reader has os:reader"),
        "{status}"
    );

    // Neither a client without a certificate nor one without TLS is served.
    let nobody = Credentials {
        ca: node.node.ca(),
        identity: None,
    };
    let refused = match connect(&path, &nobody).await {
        Err(_) => true,
        Ok(channel) => {
            let mut discovery = DiscoveryServiceClient::new(channel);
            discovery.discover(DiscoverRequest {}).await.is_err()
        }
    };
    assert!(refused);
    let refused = match connect_unix(&path).await {
        Err(_) => true,
        Ok(channel) => {
            let mut discovery = DiscoveryServiceClient::new(channel);
            discovery.discover(DiscoverRequest {}).await.is_err()
        }
    };
    assert!(refused);
    node.finish().await;
}

#[test]
fn the_socket_file_disappears_with_the_daemon_and_no_file_of_others_is_replaced() {
    let dir = TempDir::new().unwrap();
    let path = dir.path().join("aurae.sock");
    let section = format!("[compatibility]\naurae_socket = {path:?}\n");
    let builder = TestNode::builder().config(&section);
    std::fs::write(&path, "a file of others").unwrap();
    let (said, _) = builder.refused();
    assert!(said.contains("not a socket"), "{said}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "a file of others");

    std::fs::remove_file(&path).unwrap();
    let mut node = builder.start();
    assert!(path.exists());
    let (said, _) = TestNode::builder().config(&section).refused();
    assert!(said.contains("another program serves it"), "{said}");
    assert!(path.exists());

    // A daemon that was killed leaves a stale socket, which the next one replaces.
    node.kill();
    assert!(path.exists());
    let mut node = node.into_builder().config(&section).start();
    node.stop();
    assert!(!path.exists());
}
