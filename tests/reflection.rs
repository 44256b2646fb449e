//! Reflection lists exactly the services that are served.

use std::collections::BTreeSet;

use futures_util::StreamExt;
use mainstay_testkit::TestNode;
use prost::Message;
use prost_types::{FileDescriptorSet, ServiceDescriptorProto};
use tonic_reflection::pb::{v1, v1alpha};

/// Every service of the contract, with or without rpcs, and the standard ones beside them.
pub fn services() -> BTreeSet<String> {
    [
        mainstay_api::FILE_DESCRIPTOR_SET,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
    ]
    .into_iter()
    .flat_map(|set| FileDescriptorSet::decode(set).unwrap().file)
    .flat_map(|file| {
        let package = file.package().to_owned();
        let name = move |service: &ServiceDescriptorProto| format!("{package}.{}", service.name());
        file.service.iter().map(name).collect::<Vec<_>>()
    })
    .collect()
}

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

    for service in services() {
        assert!(new.contains(&service), "v1 lacks {service}: {new:?}");
        assert!(old.contains(&service), "v1alpha lacks {service}: {old:?}");
    }
}
