//! Requirements of the services on the generated code.

use bytes::Bytes;
use mainstay_api::common::Data;
use mainstay_api::runtime::instances_server::{Instances, InstancesServer};
use mainstay_api::runtime::pods_server::{Pods, PodsServer};
use mainstay_api::runtime::spawn_server::{Spawn, SpawnServer};
use mainstay_api::v1alpha::Pod;
use prost::Message;
use tonic::server::NamedService;
use tonic::service::Routes;

#[test]
fn services_without_methods_can_be_registered() {
    struct Node;
    impl Pods for Node {}
    impl Instances for Node {}
    impl Spawn for Node {}

    let _routes = Routes::new(PodsServer::new(Node))
        .add_service(InstancesServer::new(Node))
        .add_service(SpawnServer::new(Node));
    assert_eq!(PodsServer::<Node>::NAME, "runtime.Pods");
    assert_eq!(InstancesServer::<Node>::NAME, "runtime.Instances");
    assert_eq!(SpawnServer::<Node>::NAME, "runtime.Spawn");
}

#[test]
fn a_chunk_is_decoded_without_being_copied() {
    let sent = Data {
        metadata: None,
        bytes: Bytes::from(vec![7; 4096]),
    };
    let received = Bytes::from(sent.encode_to_vec());
    let held = received.as_ptr_range();
    let chunk = Data::decode(received).unwrap().bytes;
    assert_eq!(chunk, sent.bytes);
    assert!(
        held.contains(&chunk.as_ptr()),
        "the chunk lies outside of what was received"
    );
}

#[test]
fn a_pod_without_process_has_its_pid_in_zigzag() {
    let pod = Pod {
        pid: -1,
        ..Default::default()
    };
    assert_eq!(pod.encode_to_vec(), [0x10, 0x01]);
}
