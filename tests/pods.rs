//! `v1alpha.PublicAPI` on its two doors.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::v1alpha::GetInfoRequest;
use mainstay_api::v1alpha::public_api_client::PublicApiClient;
use mainstay_testkit::TestNode;
use tonic::Code;
use tonic::transport::Endpoint;

#[tokio::test]
async fn info_reports_the_versions_and_directories_of_the_node() {
    let node = TestNode::start();
    let mut pods = PublicApiClient::new(node.connect().await);
    let info = pods
        .get_info(GetInfoRequest {})
        .await
        .unwrap()
        .into_inner()
        .info
        .unwrap();
    assert_eq!(info.api_version, "1.0.0-alpha");
    assert_eq!(info.appc_version, "0.8.11");
    assert_eq!(info.rkt_version, env!("CARGO_PKG_VERSION"));
    let flags = info.global_flags.unwrap();
    assert_eq!(
        flags.dir,
        node.state().canonicalize().unwrap().display().to_string()
    );
    assert_eq!(flags.insecure_flags, "none");
}

#[tokio::test]
async fn the_plain_listener_serves_pods_to_original_clients_and_nothing_else() {
    let node = TestNode::builder()
        .arg("--pods-listen")
        .arg("127.0.0.1:0")
        .start();
    let endpoint = Endpoint::from_shared(format!("http://{}", node.pods_listen())).unwrap();
    let channel = endpoint.connect().await.unwrap();
    PublicApiClient::new(channel.clone())
        .get_info(GetInfoRequest {})
        .await
        .unwrap();
    let status = MachineServiceClient::new(channel)
        .version(())
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    assert!(status.message().starts_with("not authorized"), "{status}");
}

#[test]
fn the_plain_listener_refuses_to_leave_loopback() {
    let (said, code) = TestNode::builder()
        .arg("--pods-listen")
        .arg("0.0.0.0:0")
        .refused();
    assert_eq!(code, 2);
    assert!(said.contains("loopback"), "{said}");
}
