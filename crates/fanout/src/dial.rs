//! A connection to another node, by mutual TLS, made within one bound.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mainstay_identity::CertificateInfo;
use mainstay_identity::tls::explain;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::body::Body;

use crate::target::{Address, Host};

/// A stream that is not read holds so much at this node, and a slow reader never stops the others
/// on the same connection: together they may hold as much as they like.
const STREAM_WINDOW: u32 = 256 << 10;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// Streams may have nothing to say for long; whether the node is still there is asked so often.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Name servers that do not answer hold a thread each, and other work needs threads too.
static LOOKUPS: Semaphore = Semaphore::const_new(32);
/// A name with more addresses than this is no node of ours.
const MOST_ADDRESSES: usize = 8;

pub(crate) type Wire = Connection<TokioIo<TlsStream<TcpStream>>, Body, TokioExecutor>;

/// Why there is no connection, in words for the one who asked.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot be reached: {why}")]
pub(crate) struct Unreachable {
    why: Arc<str>,
}

impl Unreachable {
    pub(crate) fn because(why: impl Into<Arc<str>>) -> Self {
        Self { why: why.into() }
    }

    pub(crate) fn in_time(bound: Duration) -> Self {
        let bound = humantime::format_duration(bound);
        Self::because(format!("no connection within {bound}"))
    }
}

/// A connection within `bound`, name lookup and handshakes included.
pub(crate) async fn dial(
    address: &Address,
    tls: Arc<ClientConfig>,
    revoked: &BTreeSet<String>,
    bound: Duration,
) -> Result<(SendRequest<Body>, Wire), Unreachable> {
    match tokio::time::timeout(bound, connect(address, tls, revoked, bound)).await {
        Ok(connected) => connected,
        Err(_) => Err(Unreachable::in_time(bound)),
    }
}

async fn connect(
    address: &Address,
    tls: Arc<ClientConfig>,
    revoked: &BTreeSet<String>,
    bound: Duration,
) -> Result<(SendRequest<Body>, Wire), Unreachable> {
    let name = match &address.host {
        Host::Ip(ip) => ServerName::from(*ip),
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| Unreachable::because("no certificate can be for this name"))?,
    };
    let stream = open(address, bound).await?;
    let stream = TlsConnector::from(tls)
        .connect(name, stream)
        .await
        .map_err(|error| {
            let why = explain(&error).unwrap_or_else(|| format!("no TLS handshake: {error}"));
            Unreachable::because(why)
        })?;
    let serial = serial(&stream)?;
    if revoked.contains(&serial) {
        return Err(Unreachable::because(format!(
            "its certificate (serial {serial}) has been revoked"
        )));
    }
    Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(bound)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| Unreachable::because(format!("no HTTP/2: {error}")))
}

fn serial(stream: &TlsStream<TcpStream>) -> Result<String, Unreachable> {
    stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first)
        .and_then(|der| CertificateInfo::from_der(der).ok())
        .map(|info| info.serial)
        .ok_or_else(|| Unreachable::because("its certificate cannot be read"))
}

/// Tries one address after the other, each with its share of the time.
async fn open(address: &Address, bound: Duration) -> Result<TcpStream, Unreachable> {
    let found = lookup(address).await?;
    let share = bound / u32::try_from(found.len()).unwrap_or(1).max(1);
    let mut last = Unreachable::because("its name has no address");
    for at in found {
        last = match tokio::time::timeout(share, TcpStream::connect(at)).await {
            Ok(Ok(stream)) => return prepare(stream, bound),
            Ok(Err(error)) => refused(&error),
            Err(_) => Unreachable::in_time(bound),
        };
    }
    Err(last)
}

fn prepare(stream: TcpStream, bound: Duration) -> Result<TcpStream, Unreachable> {
    stream.set_nodelay(true).map_err(|error| refused(&error))?;
    // A node that went away without a word is noticed by the kernel as soon as anything is sent.
    let millis = u32::try_from(bound.as_millis()).unwrap_or(u32::MAX).max(1);
    rustix::net::sockopt::set_tcp_user_timeout(&stream, millis)
        .map_err(|error| refused(&error.into()))?;
    Ok(stream)
}

async fn lookup(address: &Address) -> Result<Vec<SocketAddr>, Unreachable> {
    let name = match &address.host {
        Host::Ip(ip) => return Ok(vec![SocketAddr::new(*ip, address.port)]),
        Host::Name(name) => name.clone(),
    };
    let port = address.port;
    let place = LOOKUPS
        .acquire()
        .await
        .map_err(|_| Unreachable::because("names are not looked up any more"))?;
    let found = tokio::task::spawn_blocking(move || {
        // Held until the lookup really ends, also when nobody waits for it any longer.
        let _place = place;
        let found = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), port))?;
        Ok::<_, std::io::Error>(found.take(MOST_ADDRESSES).collect())
    })
    .await;
    match found {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(_)) | Err(_) => Err(Unreachable::because(
            "its name is not known here; name it in [peers] or by its address",
        )),
    }
}

fn refused(error: &std::io::Error) -> Unreachable {
    let hint = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "; is mainstay serving there?",
        _ => "",
    };
    Unreachable::because(format!("{error}{hint}"))
}
