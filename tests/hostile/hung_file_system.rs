//! A file system that never answers, as after a network file system has lost its server.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{FileInfo, ListRequest};
use mainstay_identity::Role;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use mainstay_testkit::{PrivateMounts, TestNode, require, soon};

/// Walks that one caller may have running, and that all callers may.
const PER_CALLER: usize = 32;
const SHARED: usize = 128;

async fn list(channel: &Channel, root: &str) -> Result<Streaming<FileInfo>, Status> {
    let request = ListRequest {
        root: root.to_owned(),
        ..ListRequest::default()
    };
    let mut machine = MachineServiceClient::new(channel.clone());
    let list = soon("a list to begin", machine.list(request)).await?;
    Ok(list.into_inner())
}

async fn is_served(channel: &Channel) -> Result<(), Status> {
    let mut entries = list(channel, "/etc").await?;
    let first = soon("an entry", entries.message()).await?;
    assert!(first.is_some_and(|entry| entry.error.is_empty()));
    Ok(())
}

#[tokio::test]
async fn walks_that_hang_for_one_caller_do_not_block_another() {
    require!(Root);
    let node = TestNode::start();
    let path = node.scratch().join("hung");
    let mounts = PrivateMounts::hung(&path);
    let hung = mounts.seen(&path).display().to_string();
    let reader = async |name: &str| {
        let credentials = node.credentials(name, &[Role::Reader]);
        node.connect_as(&credentials).await
    };

    let greedy = reader("greedy").await;
    let mut hanging = Vec::new();
    let mut refused = 0;
    for _ in 0..SHARED {
        match list(&greedy, &hung).await {
            Ok(stream) => hanging.push(stream),
            Err(status) => {
                assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
                assert!(status.message().contains("this caller"), "{status}");
                refused += 1;
            }
        }
    }
    assert_eq!((hanging.len(), refused), (PER_CALLER, SHARED - PER_CALLER));
    is_served(&reader("other").await).await.unwrap();

    // Callers that act together exhaust the share of all, and still lock out no administrator.
    for name in ["second", "third", "fourth"] {
        let channel = reader(name).await;
        for _ in 0..PER_CALLER {
            hanging.push(list(&channel, &hung).await.unwrap());
        }
    }
    let status = is_served(&reader("fifth").await).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    is_served(&node.connect().await).await.unwrap();
    is_served(&node.connect_locally().await).await.unwrap();

    // With the file system gone its walks end, and their slots are free.
    drop(mounts);
    let fifth = reader("fifth").await;
    soon("a free slot", async {
        while let Err(status) = is_served(&fifth).await {
            assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
        }
    })
    .await;
}
