//! Every rpc of the contract × every role, against the one table.

use bytes::{Buf, BufMut};
use mainstay_identity::{RULES, Role, rule};
use mainstay_testkit::{Credentials, TestNode, connect_tls};
use prost_reflect::DescriptorPool;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

/// The path of every rpc the node's own descriptors declare.
fn methods() -> Vec<String> {
    let pool = DescriptorPool::decode(mainstay_api::FILE_DESCRIPTOR_SET).unwrap();
    pool.services()
        .flat_map(|service| {
            let name = service.full_name().to_owned();
            service
                .methods()
                .map(move |method| format!("/{name}/{}", method.name()))
                .collect::<Vec<_>>()
        })
        .collect()
}

#[test]
fn every_rpc_of_the_contract_has_a_row_of_its_own() {
    let methods = methods();
    // The 45 of the seeds, the six of the OS service under their second name, ten readings, the
    // list of cells, their attachments, packet captures, nine of later clients of cells, two of the
    // clock, two of the network, the disks, the configuration, six of schedules, and four of our own.
    assert_eq!(methods.len(), 89);
    for method in methods {
        assert!(
            RULES.iter().any(|rule| rule.method == method),
            "{method} has no row"
        );
    }
}

#[tokio::test]
async fn each_role_may_call_exactly_what_the_table_says() {
    let node = TestNode::start();
    let callers: Vec<(Option<Role>, Credentials)> = vec![
        (None, node.credentials("nobody", &[])),
        (
            Some(Role::Reader),
            node.credentials("reader", &[Role::Reader]),
        ),
        (
            Some(Role::Operator),
            node.credentials("operator", &[Role::Operator]),
        ),
        (Some(Role::Admin), node.credentials("admin", &[Role::Admin])),
    ];
    let mut paths = methods();
    paths.push("/no.such.Service/Method".to_owned());
    for (role, credentials) in callers {
        let channel = node.connect_as(&credentials).await;
        for path in &paths {
            let wanted = role >= Some(rule(path).role);
            let allowed = match call(channel.clone(), path).await {
                Err(status) if status.code() == Code::PermissionDenied => {
                    assert!(status.message().starts_with("not authorized"), "{status}");
                    false
                }
                _ => true,
            };
            assert_eq!(allowed, wanted, "{path} as {role:?}");
        }
    }
}

#[tokio::test]
async fn without_an_identity_there_is_no_call_at_all() {
    let node = TestNode::start();
    let anonymous = Credentials {
        ca: node.ca(),
        identity: None,
    };
    // In TLS 1.3 the client is done before the node has looked at its certificate, so the refusal
    // may come with the first call.
    if let Ok(channel) = connect_tls(node.listen(), &anonymous).await {
        for path in methods() {
            let refused = call(channel.clone(), &path).await.unwrap_err();
            assert_ne!(refused.code(), Code::Unimplemented, "{path} was let in");
            assert_ne!(refused.code(), Code::Ok, "{path} was let in");
        }
    }
}

#[tokio::test]
async fn an_unserved_rpc_is_unimplemented() {
    let node = TestNode::start();
    let channel = node.connect().await;
    for path in [
        "/machine.MachineService/Bootstrap",
        "/machine.MachineService/Kubeconfig",
        "/machine.MachineService/Recover",
        "/v1alpha.PublicAPI/ListPods",
    ] {
        let status = call(channel.clone(), path).await.unwrap_err();
        assert_eq!(status.code(), Code::Unimplemented);
        assert!(status.message().contains("not served"), "{status}");
    }
}

#[tokio::test]
async fn a_revoked_certificate_is_refused_from_the_reload_on_even_on_open_connections() {
    use mainstay_api::machine::machine_service_client::MachineServiceClient;

    let node = TestNode::builder()
        .config("[log]\nlevel = 'info'\n")
        .start();
    let alice = node.credentials("alice", &[Role::Reader]);
    let info =
        mainstay_identity::CertificateInfo::from_pem(&alice.identity.as_ref().unwrap().0).unwrap();
    let mut client = MachineServiceClient::new(node.connect_as(&alice).await);
    client.version(()).await.unwrap();

    std::fs::write(
        node.config_file(),
        format!("[identity]\nrevoked = ['{}']\n", info.serial),
    )
    .unwrap();
    let reloaded = crate::daemon::wait_for_event(&node, "configuration reloaded").await;
    node.signal(rustix::process::Signal::HUP);
    reloaded.await.unwrap();

    let status = client.version(()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().contains("revoked"), "{status}");
    MachineServiceClient::new(node.connect().await)
        .version(())
        .await
        .expect("others go on");
}

#[tokio::test]
async fn a_node_certificate_alone_may_do_nothing() {
    let node = TestNode::start();
    let names = mainstay_identity::NodeNames {
        common_name: "peer".to_owned(),
        dns: vec!["peer".to_owned()],
        ips: Vec::new(),
    };
    let issued = node
        .authority()
        .issue_node(&names, std::time::Duration::from_secs(3600))
        .unwrap();
    let channel = node.connect_as(&Credentials::issued(&issued)).await;
    let status = call(channel, "/machine.MachineService/Version")
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

/// Ends the node, or the test's part of it, if their message can be decoded.
const ENDING: [&str; 3] = [
    "/machine.MachineService/Reboot",
    "/machine.MachineService/Reset",
    "/machine.MachineService/Shutdown",
];

/// Calls any method with an empty message, or a malformed one where that is without effect, and
/// reads the first answer.
async fn call(channel: Channel, path: &str) -> Result<(), Status> {
    let mut grpc = Grpc::new(channel);
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(error.to_string()))?;
    let codec = Raw {
        message: if ENDING.contains(&path) { b"\xff" } else { b"" },
    };
    let path = path.parse().unwrap();
    let call = grpc.server_streaming(Request::new(()), path, codec);
    let answer = tokio::time::timeout(mainstay_testkit::WAIT_TIMEOUT, call)
        .await
        .unwrap();
    drop(answer?);
    Ok(())
}

/// One message out, anything in.
#[derive(Clone, Copy)]
struct Raw {
    message: &'static [u8],
}

impl Codec for Raw {
    type Encode = ();
    type Decode = ();
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        *self
    }
    fn decoder(&mut self) -> Self {
        *self
    }
}

impl Encoder for Raw {
    type Item = ();
    type Error = Status;
    fn encode(&mut self, (): (), out: &mut EncodeBuf<'_>) -> Result<(), Status> {
        out.put_slice(self.message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = ();
    type Error = Status;
    fn decode(&mut self, bytes: &mut DecodeBuf<'_>) -> Result<Option<()>, Status> {
        bytes.advance(bytes.remaining());
        Ok(Some(()))
    }
}
