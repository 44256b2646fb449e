//! gRPC channels over mTLS and unix sockets that never reconnect: a lost connection stays lost.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use hyper_util::rt::TokioIo;
use mainstay_identity::{IssuedPem, PrivateKeyPem, tls};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

/// The CA to trust and the client certificate to present, as PEM.
#[derive(Clone)]
pub struct Credentials {
    pub ca: String,
    pub identity: Option<(String, PrivateKeyPem)>,
}

/// [`Credentials`] parsed once, for many connections. They share a TLS session cache.
#[derive(Clone, Debug)]
pub struct TlsClient {
    config: Arc<rustls::ClientConfig>,
}

impl Credentials {
    pub fn issued(issued: &IssuedPem) -> Self {
        Self {
            ca: issued.ca.clone(),
            identity: Some((issued.cert.clone(), issued.key.clone())),
        }
    }

    pub fn tls_client(&self) -> Result<TlsClient> {
        let identity = self.identity.as_ref();
        let identity = identity.map(|(cert, key)| (cert.as_str(), key));
        let config = tls::client_config(&self.ca, identity)?;
        Ok(TlsClient { config })
    }

    /// Connects and completes the handshake as far as a client sees it.
    pub async fn handshake(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>> {
        self.handshake_over(TcpStream::connect(address).await?)
            .await
    }

    /// Completes the handshake on an open connection.
    pub async fn handshake_over(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        self.tls_client()?.handshake_over(stream).await
    }
}

impl TlsClient {
    async fn handshake_over(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>> {
        stream.set_nodelay(true)?;
        let name = ServerName::from(stream.peer_addr()?.ip());
        let connector = TlsConnector::from(Arc::clone(&self.config));
        Ok(connector.connect(name, stream).await?)
    }

    /// Opens a connection of its own.
    pub async fn connect(&self, address: SocketAddr) -> Result<Channel> {
        let stream = TcpStream::connect(address).await?;
        connect_over(self.handshake_over(stream).await?).await
    }
}

/// Opens a gRPC channel over mTLS.
pub async fn connect_tls(address: SocketAddr, credentials: &Credentials) -> Result<Channel> {
    credentials.tls_client()?.connect(address).await
}

/// Opens a gRPC channel over an open stream.
pub async fn connect_over<S>(stream: S) -> Result<Channel>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut stream = Some(stream);
    let once = tower::service_fn(move |_| {
        let stream = stream.take().map(TokioIo::new);
        async move { stream.ok_or_else(|| std::io::Error::other("connection lost")) }
    });
    Ok(Endpoint::from_static("http://node")
        .connect_with_connector(once)
        .await?)
}

/// Opens a gRPC channel over a unix socket.
pub async fn connect_unix(path: &Path) -> Result<Channel> {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://node")
        .connect_with_connector(connector)
        .await?)
}
