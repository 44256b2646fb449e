//! A connection to a node, from the context of the client configuration.

mod endpoint;
mod locate;
mod nodes;

use std::sync::Arc;

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
use tonic::transport::Channel;

use crate::cli::Global;
use crate::failure::{Exit, Failure, Outcome, chain, warn};
use endpoint::Endpoint;
pub use locate::{config_path, load, local_state, writable_config_path};
pub use nodes::{Answer, passed_on};

/// The service nearly every command talks to.
pub type Machine = MachineServiceClient<Channel>;

pub type Cells = CellServiceClient<Channel>;

/// The largest message a node sends.
const MOST_MESSAGE_BYTES: usize = 32 << 20;

pub struct Client {
    channel: Channel,
    endpoint: String,
    nodes: Vec<String>,
    timeout: std::time::Duration,
    failures: nodes::Failures,
}

/// Anything bytes go through.
trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Client {
    /// Tries the endpoints in order; the first that answers is used.
    pub async fn connect(global: &Global) -> Outcome<Self> {
        Self::connect_telling(global, warn).await
    }

    /// The same, for those who cannot have warnings written to standard error.
    pub async fn connect_telling(global: &Global, tell: impl Fn(&str)) -> Outcome<Self> {
        let (name, context) = locate::context(global)?;
        let endpoints = endpoints(global, &context)?;
        check_certificate(&name, &context, &tell)?;
        let nodes = match global.nodes.as_slice() {
            [] => context.nodes.clone(),
            named => named.to_vec(),
        };
        if let Some(node) = nodes.iter().find(|node| !is_sendable(node)) {
            return Err(Failure::usage(format!(
                "{node:?} is not a node; write HOST, ADDRESS or HOST:PORT"
            )));
        }
        let mut last = None;
        for endpoint in &endpoints {
            match Self::connect_to(endpoint, &context, global).await {
                Ok(channel) => {
                    return Ok(Self {
                        channel,
                        endpoint: endpoint.to_string(),
                        nodes,
                        timeout: global.timeout,
                        failures: nodes::Failures::default(),
                    });
                }
                Err(failure) => {
                    if let Some(earlier) = last.replace(failure) {
                        tell(&earlier.message);
                    }
                }
            }
        }
        Err(last.unwrap_or_else(|| {
            Failure::usage(format!(
                "context {name:?} has no endpoints; name one with -e HOST or add it with mainstay config add"
            ))
        }))
    }

    async fn connect_to(
        endpoint: &Endpoint,
        context: &Context,
        global: &Global,
    ) -> Outcome<Channel> {
        let wire = match tokio::time::timeout(global.timeout, open(endpoint, context)).await {
            Ok(wire) => wire?,
            Err(_) => {
                return Err(Failure::new(
                    Exit::Unreachable,
                    format!(
                        "node {endpoint} cannot be reached: no connection within {}",
                        humantime::format_duration(global.timeout)
                    ),
                ));
            }
        };
        // The connection is made above, where its errors can be told apart; it is handed over once.
        let mut wire = Some(wire);
        let hand_over = tower::service_fn(move |_| {
            let wire = wire.take();
            async move {
                wire.map(TokioIo::new)
                    .ok_or_else(|| std::io::Error::other("the connection was lost"))
            }
        });
        tonic::transport::Endpoint::from_static("http://node")
            .http2_keep_alive_interval(std::time::Duration::from_secs(20))
            .keep_alive_timeout(std::time::Duration::from_secs(20))
            .connect_with_connector(hand_over)
            .await
            .map_err(|error| {
                let why = tls::explain(&error);
                let exit = if why.is_some() {
                    Exit::Tls
                } else {
                    Exit::Unreachable
                };
                let why = why.unwrap_or_else(|| chain(&error));
                Failure::new(exit, format!("node {endpoint} cannot be reached: {why}"))
            })
    }

    pub fn channel(&self) -> Channel {
        self.channel.clone()
    }

    pub fn machine(&self) -> Machine {
        Machine::new(self.channel()).max_decoding_message_size(MOST_MESSAGE_BYTES)
    }

    pub fn cells(&self) -> Cells {
        Cells::new(self.channel()).max_decoding_message_size(MOST_MESSAGE_BYTES)
    }

    pub fn observe(&self) -> ObserveClient<Channel> {
        ObserveClient::new(self.channel()).max_decoding_message_size(MOST_MESSAGE_BYTES)
    }

    /// How long to wait for an answer, if nothing else is known of it.
    pub fn timeout(&self) -> std::time::Duration {
        self.timeout
    }

    /// The nodes that requests are for; none means the endpoint itself.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// Bounds the wait for an answer, or for a stream to begin.
    pub async fn within<T>(
        &self,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Outcome<T> {
        within(self.timeout, call).await
    }

    /// The same for what takes its time.
    pub async fn within_bound<T>(
        &self,
        bound: std::time::Duration,
        call: impl Future<Output = Result<T, tonic::Status>>,
    ) -> Outcome<T> {
        within(bound.max(self.timeout), call).await
    }

    /// Who answered: the name a forwarding node gave, else the endpoint itself.
    pub fn node_name(&self, metadata: Option<&Metadata>) -> String {
        match metadata {
            Some(metadata) if !metadata.hostname.is_empty() => metadata.hostname.clone(),
            _ => self.endpoint.clone(),
        }
    }
}

/// What cannot be sent as the name of a node would be answered by the endpoint instead.
fn is_sendable(node: &str) -> bool {
    node.parse::<tonic::metadata::AsciiMetadataValue>().is_ok()
}

async fn within<T>(
    bound: std::time::Duration,
    call: impl Future<Output = Result<T, tonic::Status>>,
) -> Outcome<T> {
    match tokio::time::timeout(bound, call).await {
        // The library counts the time as well, where the node was told of it.
        Ok(Err(status)) if !is_timeout(&status) => Err(status.into()),
        Ok(Ok(answer)) => Ok(answer),
        _ => Err(Failure::new(
            Exit::Timeout,
            format!(
                "no answer within {}; --timeout TIME waits longer",
                humantime::format_duration(bound)
            ),
        )),
    }
}

fn is_timeout(status: &tonic::Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        if error.is::<tonic::TimeoutExpired>() {
            return true;
        }
        cause = error.source();
    }
    false
}

fn endpoints(global: &Global, context: &Context) -> Outcome<Vec<Endpoint>> {
    if !global.endpoints.is_empty() {
        return global
            .endpoints
            .iter()
            .map(|text| Endpoint::parse(text))
            .collect();
    }
    if let Some(socket) = &context.socket {
        return Ok(vec![Endpoint::Unix(socket.clone())]);
    }
    context
        .endpoints
        .iter()
        .map(|text| Endpoint::parse(text))
        .collect()
}

/// An expired certificate is told before the node refuses it, one that soon will be is warned of.
fn check_certificate(name: &str, context: &Context, tell: impl Fn(&str)) -> Outcome {
    let Some(info) = context
        .crt
        .as_deref()
        .and_then(|pem| CertificateInfo::from_pem(pem).ok())
    else {
        return Ok(());
    };
    let now = jiff::Timestamp::now();
    let owner = format!("context {name:?}");
    match certificate_warning(&owner, &info, now) {
        Some(expired) if info.is_expired(now) => Err(Failure::new(Exit::Tls, expired)),
        Some(warning) => {
            tell(&warning);
            Ok(())
        }
        None => Ok(()),
    }
}

async fn open(endpoint: &Endpoint, context: &Context) -> Outcome<Box<dyn Wire>> {
    let unreachable = |error: std::io::Error| {
        let hint = match error.kind() {
            std::io::ErrorKind::ConnectionRefused | std::io::ErrorKind::NotFound => {
                "; is mainstay serving there?"
            }
            _ => "",
        };
        Failure::new(
            Exit::Unreachable,
            format!("node {endpoint} cannot be reached: {error}{hint}"),
        )
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
            Ok(Box::new(handshake(stream, host, endpoint, context).await?))
        }
    }
}

async fn handshake(
    stream: TcpStream,
    host: &str,
    endpoint: &Endpoint,
    context: &Context,
) -> Outcome<impl Wire + use<>> {
    let Some(ca) = &context.ca else {
        return Err(Failure::new(
            Exit::Tls,
            "the context has no CA to check the node against",
        ));
    };
    let config = tls::client_config(ca, context.identity())
        .map_err(|error| Failure::caused(Exit::Tls, &error))?;
    let name = ServerName::try_from(host.to_owned()).map_err(|_| {
        Failure::usage(format!(
            "{host:?} is not a host name or address a certificate could carry"
        ))
    })?;
    TlsConnector::from(Arc::clone(&config))
        .connect(name, stream)
        .await
        .map_err(|error| match tls::explain(&error) {
            Some(why) => Failure::new(Exit::Tls, format!("node {endpoint}: {why}")),
            None => Failure::new(
                Exit::Unreachable,
                format!("node {endpoint} ended the connection during the TLS handshake: {error}"),
            ),
        })
}
