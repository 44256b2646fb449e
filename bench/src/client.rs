//! The client's side: as an administrator of the node, over mutual TLS.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context as _, Result};
use hyper_util::rt::TokioIo;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_identity::{ClientConfig, tls};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};

pub type Client = MachineServiceClient<Channel>;

/// What the node on some state directory issued to its administrator.
#[derive(Clone, Debug)]
pub struct Credentials(Arc<rustls::ClientConfig>);

impl Credentials {
    pub fn of(state: &Path) -> Result<Self> {
        let config = ClientConfig::load(&state.join("client.yaml"))?;
        let (_, context) = config.get(None)?;
        let ca = context.ca.as_deref().context("client.yaml has no CA")?;
        Ok(Self(tls::client_config(ca, context.identity())?))
    }

    pub async fn connect(&self, address: SocketAddr) -> Result<Client> {
        Ok(Client::new(self.channel(address).await?))
    }

    /// One connection; it is not made again when it is lost.
    pub async fn channel(&self, address: SocketAddr) -> Result<Channel> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream = TlsConnector::from(Arc::clone(&self.0))
            .connect(ServerName::from(address.ip()), stream)
            .await?;
        let mut stream = Some(TokioIo::new(stream));
        let once = tower::service_fn(move |_| {
            let stream = stream.take();
            async move { stream.ok_or_else(|| std::io::Error::other("connection lost")) }
        });
        let channel = Endpoint::from_static("http://node")
            .connect_with_connector(once)
            .await?;
        Ok(channel)
    }
}
