//! `ApplyConfiguration` and `mainstay config node`: a configuration sent to a running node.

mod command_line;
mod hostile;
mod transaction;
mod trial;

use mainstay_api::machine::apply_configuration_request::Mode;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{ApplyConfiguration, ApplyConfigurationRequest};
use mainstay_api::mainstay::Configuration;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_testkit::{TestNode, soon};
use tonic::Status;

fn request(text: &str, mode: Mode) -> ApplyConfigurationRequest {
    ApplyConfigurationRequest {
        data: text.to_owned().into(),
        mode: mode.into(),
        ..ApplyConfigurationRequest::default()
    }
}

async fn send(
    node: &TestNode,
    request: ApplyConfigurationRequest,
) -> Result<ApplyConfiguration, Status> {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let answer = soon("the answer", client.apply_configuration(request)).await?;
    let mut messages = answer.into_inner().messages;
    assert_eq!(messages.len(), 1);
    Ok(messages.remove(0))
}

async fn apply(node: &TestNode, text: &str, mode: Mode) -> Result<ApplyConfiguration, Status> {
    send(node, request(text, mode)).await
}

/// The configuration in force.
async fn in_force(node: &TestNode) -> Configuration {
    let mut client = NodeServiceClient::new(node.connect_locally().await);
    let answer = soon("the answer", client.configuration(())).await.unwrap();
    answer.into_inner().messages.remove(0)
}

fn file(node: &TestNode) -> String {
    std::fs::read_to_string(node.config_file()).unwrap()
}
