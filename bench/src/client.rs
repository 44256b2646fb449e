//! Clients of the node and of the floor, as an administrator over mTLS.

use std::net::SocketAddr;

use anyhow::Result;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::TlsClient;
use tonic::transport::Channel;

pub type Client = MachineServiceClient<Channel>;

/// Opens one connection.
pub async fn connect(tls: &TlsClient, address: SocketAddr) -> Result<Client> {
    Ok(Client::new(tls.connect(address).await?))
}
