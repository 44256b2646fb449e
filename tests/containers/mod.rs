//! Containers of other runtimes: against a real containerd with its CRI plugin.

mod absent;
mod kubernetes;
mod logs;
mod plain;

use mainstay_api::common::ContainerDriver;
use mainstay_api::os::os_service_client::OsServiceClient;
use mainstay_api::os::{ContainerInfo, ContainersRequest, RestartRequest, Stat, StatsRequest};
use mainstay_testkit::{TestContainerd, TestNode, soon};
use tonic::Status;
use tonic::transport::Channel;

const CONTAINERD: ContainerDriver = ContainerDriver::Containerd;
const CRI: ContainerDriver = ContainerDriver::Cri;

fn node_of(containerd: &TestContainerd) -> TestNode {
    TestNode::builder()
        .config(&containerd.node_config())
        .start()
}

async fn containers(
    channel: &Channel,
    namespace: &str,
    driver: ContainerDriver,
) -> Result<Vec<ContainerInfo>, Status> {
    let request = ContainersRequest {
        namespace: namespace.to_owned(),
        driver: driver.into(),
    };
    let mut client = OsServiceClient::new(channel.clone());
    let call = client.containers(request);
    let mut messages = soon("containers", call).await?.into_inner().messages;
    assert_eq!(messages.len(), 1, "a node answers for itself");
    let message = messages.remove(0);
    assert_eq!(message.metadata, None);
    Ok(message.containers)
}

async fn stats(
    channel: &Channel,
    namespace: &str,
    driver: ContainerDriver,
) -> Result<Vec<Stat>, Status> {
    let request = StatsRequest {
        namespace: namespace.to_owned(),
        driver: driver.into(),
    };
    let mut client = OsServiceClient::new(channel.clone());
    let mut messages = soon("stats", client.stats(request))
        .await?
        .into_inner()
        .messages;
    assert_eq!(messages.len(), 1);
    Ok(messages.remove(0).stats)
}

async fn restart(
    channel: &Channel,
    namespace: &str,
    id: &str,
    driver: ContainerDriver,
) -> Result<(), Status> {
    let request = RestartRequest {
        namespace: namespace.to_owned(),
        id: id.to_owned(),
        driver: driver.into(),
    };
    let mut client = OsServiceClient::new(channel.clone());
    let answer = soon("the restart", client.restart(request)).await?;
    assert_eq!(answer.into_inner().messages.len(), 1, "never none");
    Ok(())
}

#[track_caller]
fn by_id<'a>(containers: &'a [ContainerInfo], id: &str) -> &'a ContainerInfo {
    let mut found = containers.iter().filter(|container| container.id == id);
    let container = found
        .next()
        .unwrap_or_else(|| panic!("{id} in {containers:?}"));
    assert!(found.next().is_none(), "one {id} in {containers:?}");
    container
}

/// Waits until a process of the machine runs with this in its arguments: a container's begins as its
/// runtime's.
async fn runs(pid: u32, words: &str) {
    let begun = async {
        loop {
            let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
            if String::from_utf8_lossy(&arguments).contains(words) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    soon("the container's own process", begun).await;
}
