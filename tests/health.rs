//! The standard health service, and `mainstay health`.

use mainstay_testkit::{TestNode, soon};
use tonic::Code;
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

fn about(service: &str) -> HealthCheckRequest {
    HealthCheckRequest {
        service: service.to_owned(),
    }
}

#[tokio::test]
async fn the_node_and_each_service_report_serving() {
    let node = TestNode::start();
    let mut health = HealthClient::new(node.connect().await);
    let mut services = crate::reflection::services();
    assert!(services.contains("machine.MachineService"), "{services:?}");
    services.retain(|service| !service.starts_with("grpc."));
    services.insert(String::new());
    for service in services {
        let answer = health.check(about(&service)).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service}");
    }
    let unknown = health.check(about("no.Such")).await.unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
}

#[tokio::test]
async fn a_watcher_sees_the_node_stop() {
    let mut node = TestNode::start();
    let mut health = HealthClient::new(node.connect().await);
    let mut watch = health.watch(about("")).await.unwrap().into_inner();
    assert_eq!(
        watch.message().await.unwrap().unwrap().status(),
        ServingStatus::Serving
    );
    node.signal(rustix::process::Signal::TERM);
    // Either it still hears of it, or the stream ends with a status that says to come back.
    match soon("the watch to notice", watch.message()).await {
        Ok(Some(answer)) => assert_eq!(answer.status(), ServingStatus::NotServing),
        Ok(None) => panic!("the stream ended as if all was well"),
        Err(status) => assert_eq!(status.code(), Code::Unavailable),
    }
    assert!(node.wait().success());
}

#[test]
fn the_exit_code_of_health_reflects_the_status() {
    let node = TestNode::start();
    assert!(node.cli().run(["health"]).ok().contains("SERVING"));
    assert_eq!(
        node.cli().run(["health", "-o", "json"]).json()["status"],
        "SERVING"
    );
    let said = node.cli().run(["health", "no.Such"]).failed(6);
    assert!(said.contains("no.Such"), "{said}");
}
