use std::fmt;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use mainstay_api::common::Metadata;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_identity::tls::{self, certificate_warning};
use mainstay_identity::{CertificateInfo, Context};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tonic::Status;
use tonic::transport::Channel;

use crate::call::within;
use crate::{Endpoint, Error, Options, chain, config_file};

/// Client of the `machine.MachineService`.
pub type Machine = MachineServiceClient<Channel>;

/// Client of the `runtime.CellService`.
pub type Cells = CellServiceClient<Channel>;

/// Largest message a node sends.
pub const MAX_MESSAGE_BYTES: usize = 32 << 20;

const KEEP_ALIVE: Duration = Duration::from_secs(20);

/// A connection to one node, through which calls to other nodes are forwarded.
pub struct Client {
    channel: Channel,
    endpoint: String,
    nodes: Vec<String>,
    timeout: Duration,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("endpoint", &self.endpoint)
            .field("nodes", &self.nodes)
            .finish_non_exhaustive()
    }
}

/// A byte stream that HTTP/2 runs over.
trait Transport: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Transport for T {}

impl Client {
    /// Connects to the first endpoint that answers. `warn` receives a client certificate that is
    /// about to expire, and the errors of endpoints tried before the last.
    pub async fn connect(options: &Options, warn: impl Fn(&str)) -> Result<Self, Error> {
        let (name, context) = config_file::context(options)?;
        let endpoints = endpoints(options, &context)?;
        check_certificate(&name, &context, &warn)?;
        let nodes = match options.nodes.as_slice() {
            [] => context.nodes.clone(),
            named => named.to_vec(),
        };
        // A name that cannot be sent would silently select the endpoint itself.
        if let Some(node) = nodes.iter().find(|node| !is_sendable(node)) {
            return Err(Error::InvalidNode(node.clone()));
        }
        let mut last = None;
        for endpoint in &endpoints {
            match connect_to(endpoint, &name, &context, options.timeout).await {
                Ok(channel) => {
                    return Ok(Self {
                        channel,
                        endpoint: endpoint.to_string(),
                        nodes,
                        timeout: options.timeout,
                    });
                }
                Err(error) => {
                    if let Some(earlier) = last.replace(error) {
                        warn(&chain(&earlier));
                    }
                }
            }
        }
        Err(last.unwrap_or(Error::NoEndpoints(name)))
    }

    /// Returns the channel, for services without a client here.
    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    /// Returns a client of the machine service.
    pub fn machine(&self) -> Machine {
        Machine::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Returns a client of the cell service.
    pub fn cells(&self) -> Cells {
        Cells::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Returns a client of the observe service.
    pub fn observe(&self) -> ObserveClient<Channel> {
        ObserveClient::new(self.channel()).max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    /// Returns the bound on one answer.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the nodes that calls are forwarded to; empty for the endpoint itself.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Returns `true` if more than one node is called.
    pub fn has_many_nodes(&self) -> bool {
        self.nodes.len() > 1
    }

    /// Waits for an answer, or for a stream to start, within the client's timeout.
    pub async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Error> {
        within(self.timeout, call).await
    }

    /// Waits for a slow answer within `timeout`, or the client's timeout if that is longer.
    pub async fn within_timeout<T>(
        &self,
        timeout: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Error> {
        within(timeout.max(self.timeout), call).await
    }

    /// Returns the name of the node that answered: as a forwarding node gave it, else the
    /// endpoint.
    pub fn node_name(&self, metadata: Option<&Metadata>) -> String {
        match metadata {
            Some(metadata) if !metadata.hostname.is_empty() => metadata.hostname.clone(),
            _ => self.endpoint.clone(),
        }
    }
}

fn is_sendable(node: &str) -> bool {
    node.parse::<tonic::metadata::AsciiMetadataValue>().is_ok()
}

fn endpoints(options: &Options, context: &Context) -> Result<Vec<Endpoint>, Error> {
    let named = match (&*options.endpoints, &context.socket) {
        ([], Some(socket)) => return Ok(vec![Endpoint::Unix(socket.clone())]),
        ([], None) => &context.endpoints,
        _ => &options.endpoints,
    };
    named.iter().map(|text| Endpoint::parse(text)).collect()
}

/// Fails for an expired certificate, which the node would refuse with fewer words.
fn check_certificate(name: &str, context: &Context, warn: impl Fn(&str)) -> Result<(), Error> {
    let certificate = context.crt.as_deref();
    let Some(info) = certificate.and_then(|pem| CertificateInfo::from_pem(pem).ok()) else {
        return Ok(());
    };
    let now = jiff::Timestamp::now();
    match certificate_warning(&format!("context {name:?}"), &info, now) {
        Some(expired) if info.is_expired(now) => Err(Error::CertificateExpired(expired)),
        Some(warning) => {
            warn(&warning);
            Ok(())
        }
        None => Ok(()),
    }
}

async fn connect_to(
    endpoint: &Endpoint,
    name: &str,
    context: &Context,
    timeout: Duration,
) -> Result<Channel, Error> {
    let opened = tokio::time::timeout(timeout, open(endpoint, name, context)).await;
    let transport = opened.map_err(|_| Error::ConnectTimeout {
        endpoint: endpoint.clone(),
        timeout,
    })??;
    // The transport is opened above, where its errors have types; the library takes it once.
    let mut transport = Some(transport);
    let connector = tower::service_fn(move |_| {
        let transport = transport.take();
        async move {
            transport
                .map(TokioIo::new)
                .ok_or_else(|| std::io::Error::other("connection closed"))
        }
    });
    tonic::transport::Endpoint::from_static("http://node")
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .connect_with_connector(connector)
        .await
        .map_err(|error| match tls::explain(&error) {
            Some(reason) => Error::Tls {
                endpoint: endpoint.clone(),
                reason,
            },
            None => Error::Http2 {
                endpoint: endpoint.clone(),
                source: error,
            },
        })
}

async fn open(
    endpoint: &Endpoint,
    name: &str,
    context: &Context,
) -> Result<Box<dyn Transport>, Error> {
    let unreachable = |source: std::io::Error| Error::Connect {
        endpoint: endpoint.clone(),
        source,
    };
    match endpoint {
        Endpoint::Unix(path) => Ok(Box::new(
            UnixStream::connect(path).await.map_err(unreachable)?,
        )),
        Endpoint::Tcp { host, port } => {
            let stream = TcpStream::connect((host.as_str(), *port))
                .await
                .map_err(unreachable)?;
            stream.set_nodelay(true).map_err(unreachable)?;
            let tls = handshake(stream, host, endpoint, name, context).await?;
            Ok(Box::new(tls))
        }
    }
}

async fn handshake(
    stream: TcpStream,
    host: &str,
    endpoint: &Endpoint,
    name: &str,
    context: &Context,
) -> Result<impl Transport + use<>, Error> {
    let ca = context.ca.as_ref();
    let ca = ca.ok_or_else(|| Error::NoCa(name.to_owned()))?;
    let config = tls::client_config(ca, context.identity()).map_err(Error::Credentials)?;
    let server =
        ServerName::try_from(host.to_owned()).map_err(|_| Error::InvalidHost(host.to_owned()))?;
    TlsConnector::from(config)
        .connect(server, stream)
        .await
        .map_err(|error| match tls::explain(&error) {
            Some(reason) => Error::Tls {
                endpoint: endpoint.clone(),
                reason,
            },
            None => Error::Handshake {
                endpoint: endpoint.clone(),
                source: error,
            },
        })
}
