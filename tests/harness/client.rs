use std::net::SocketAddr;
use std::path::Path;

use hyper_util::rt::TokioIo;
use mainstay_identity::{IssuedPem, PrivateKeyPem, tls};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};

type Failed = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
pub struct Credentials {
    pub ca: String,
    pub identity: Option<(String, PrivateKeyPem)>,
}

impl Credentials {
    pub fn issued(issued: &IssuedPem) -> Self {
        Self {
            ca: issued.ca.clone(),
            identity: Some((issued.cert.clone(), issued.key.clone())),
        }
    }

    /// A TLS stream to the node: the handshake as far as the client can see it.
    pub async fn handshake(&self, address: SocketAddr) -> Result<TlsStream<TcpStream>, Failed> {
        self.handshake_over(TcpStream::connect(address).await?)
            .await
    }

    /// The same over a connection that is there already.
    pub async fn handshake_over(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, Failed> {
        let identity = self
            .identity
            .as_ref()
            .map(|(cert, key)| (cert.as_str(), key));
        let config = tls::client_config(&self.ca, identity)?;
        stream.set_nodelay(true)?;
        let name = ServerName::from(stream.peer_addr()?.ip());
        Ok(TlsConnector::from(config).connect(name, stream).await?)
    }
}

/// A gRPC channel over mTLS, without reconnecting: a lost connection stays lost, as tests want it.
pub async fn connect_tls(
    address: SocketAddr,
    credentials: &Credentials,
) -> Result<Channel, Failed> {
    connect_over(credentials.handshake(address).await?).await
}

/// A gRPC channel over a stream that is there already.
pub async fn connect_over<S>(stream: S) -> Result<Channel, Failed>
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

pub async fn connect_unix(path: &Path) -> Result<Channel, Failed> {
    let path = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { UnixStream::connect(path).await.map(TokioIo::new) }
    });
    Ok(Endpoint::from_static("http://node")
        .connect_with_connector(connector)
        .await?)
}
