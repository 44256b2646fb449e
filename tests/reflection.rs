//! What reflection tells is what is served.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use tonic_reflection::pb::{v1, v1alpha};

use crate::harness::TestNode;

/// Every service of the contract, with or without rpcs, and the standard ones beside them.
pub const SERVICES: &[&str] = &[
    "aurae.cells.v0.CellService",
    "aurae.discovery.v0.DiscoveryService",
    "aurae.observe.v0.ObserveService",
    "grpc.health.v1.Health",
    "machine.MachineService",
    "observe.Observe",
    "os.OSService",
    "runtime.CellService",
    "runtime.Instances",
    "runtime.Pods",
    "runtime.Spawn",
    "services.auth.AuthService",
    "stats.StatsService",
    "v1alpha.PublicAPI",
];

#[tokio::test]
async fn both_versions_of_reflection_list_every_service() {
    let node = TestNode::start();

    let ask = v1::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(v1::server_reflection_request::MessageRequest::ListServices(
            String::new(),
        )),
    };
    let mut client =
        v1::server_reflection_client::ServerReflectionClient::new(node.connect().await);
    let mut answers = client
        .server_reflection_info(tokio_stream::once(ask))
        .await
        .unwrap()
        .into_inner();
    let answer = answers
        .next()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let v1::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer else {
        panic!("{answer:?}");
    };
    let new: BTreeSet<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();

    let ask = v1alpha::ServerReflectionRequest {
        host: String::new(),
        message_request: Some(
            v1alpha::server_reflection_request::MessageRequest::ListServices(String::new()),
        ),
    };
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(node.connect().await);
    let mut answers = client
        .server_reflection_info(tokio_stream::once(ask))
        .await
        .unwrap()
        .into_inner();
    let answer = answers
        .next()
        .await
        .unwrap()
        .unwrap()
        .message_response
        .unwrap();
    let v1alpha::server_reflection_response::MessageResponse::ListServicesResponse(list) = answer
    else {
        panic!("{answer:?}");
    };
    let old: BTreeSet<String> = list
        .service
        .into_iter()
        .map(|service| service.name)
        .collect();

    for service in SERVICES {
        assert!(new.contains(*service), "v1 lacks {service}: {new:?}");
        assert!(old.contains(*service), "v1alpha lacks {service}: {old:?}");
    }
}
