//! Dialing another node: lookup, TCP, mutual TLS and HTTP/2 within one timeout.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::client::conn::http2::{Builder, Connection, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mainstay_error_chain::chain;
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

/// The bytes an unread stream may buffer here. The window of the connection is unlimited, so that a
/// slow reader never blocks other streams of the same connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Window {
    /// For throughput, also over distances.
    Wide,
    /// For calls to many nodes.
    Narrow,
}

/// Calls that name more nodes use narrow windows.
const MAX_WIDE_NODES: usize = 16;
const CONNECTION_WINDOW: u32 = (1 << 31) - 1;
/// The bytes of response headers and trailers, status messages included.
const MAX_HEADER_BYTES: u32 = 64 << 10;
/// The interval of HTTP/2 pings, which find a dead peer behind an idle stream.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Bounds concurrent lookups: each blocks a thread for as long as its name server is silent.
static LOOKUPS: Semaphore = Semaphore::const_new(32);
/// The number of addresses of a name to try.
const MAX_ADDRESSES: usize = 8;

pub(crate) type Wire = Connection<TokioIo<TlsStream<TcpStream>>, Body, TokioExecutor>;

impl Window {
    /// The window for each node of a call that names so many.
    pub(crate) fn of_call(nodes: usize) -> Self {
        if nodes <= MAX_WIDE_NODES {
            Self::Wide
        } else {
            Self::Narrow
        }
    }

    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Wide => 256 << 10,
            Self::Narrow => 8 << 10,
        }
    }
}

/// The reason there is no connection, for the caller.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot be reached: {reason}")]
pub(crate) struct Unreachable {
    reason: Arc<str>,
}

impl Unreachable {
    pub(crate) fn because(reason: impl Into<Arc<str>>) -> Self {
        Self {
            reason: reason.into(),
        }
    }

    pub(crate) fn timed_out(timeout: Duration) -> Self {
        let timeout = humantime::format_duration(timeout);
        Self::because(format!("no connection within {timeout}"))
    }
}

/// Connects within `timeout`, name lookup and handshakes included.
pub(crate) async fn dial(
    address: &Address,
    window: Window,
    tls: Arc<ClientConfig>,
    revoked: &BTreeSet<String>,
    timeout: Duration,
) -> Result<(SendRequest<Body>, Wire), Unreachable> {
    match tokio::time::timeout(timeout, connect(address, window, tls, revoked, timeout)).await {
        Ok(connected) => connected,
        Err(_) => Err(Unreachable::timed_out(timeout)),
    }
}

async fn connect(
    address: &Address,
    window: Window,
    tls: Arc<ClientConfig>,
    revoked: &BTreeSet<String>,
    timeout: Duration,
) -> Result<(SendRequest<Body>, Wire), Unreachable> {
    let name = match &address.host {
        Host::Ip(ip) => ServerName::from(*ip),
        Host::Name(name) => ServerName::try_from(name.clone())
            .map_err(|_| Unreachable::because("its name cannot be in a certificate"))?,
    };
    let stream = open(address, timeout).await?;
    let stream = TlsConnector::from(tls)
        .connect(name, stream)
        .await
        .map_err(|error| {
            let reason = explain(&error)
                .unwrap_or_else(|| format!("TLS handshake failed: {}", chain(&error)));
            Unreachable::because(reason)
        })?;
    let serial = serial(&stream)?;
    if revoked.contains(&serial) {
        return Err(Unreachable::because(format!(
            "its certificate (serial {serial}) has been revoked"
        )));
    }
    Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .initial_stream_window_size(u32::try_from(window.bytes()).unwrap_or(u32::MAX))
        .max_header_list_size(MAX_HEADER_BYTES)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(timeout)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(|error| {
            Unreachable::because(format!("HTTP/2 handshake failed: {}", chain(&error)))
        })
}

fn serial(stream: &TlsStream<TcpStream>) -> Result<String, Unreachable> {
    stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first)
        .and_then(|der| CertificateInfo::from_der(der).ok())
        .map(|info| info.serial)
        .ok_or_else(|| Unreachable::because("its certificate is unreadable"))
}

/// Tries one address after the other, each with its share of the time.
async fn open(address: &Address, timeout: Duration) -> Result<TcpStream, Unreachable> {
    let found = lookup(address).await?;
    let share = timeout / u32::try_from(found.len()).unwrap_or(1).max(1);
    let mut last = Unreachable::because("its name has no address");
    for at in found {
        last = match tokio::time::timeout(share, TcpStream::connect(at)).await {
            Ok(Ok(stream)) => return prepare(stream, timeout),
            Ok(Err(error)) => refused(&error),
            Err(_) => Unreachable::timed_out(timeout),
        };
    }
    Err(last)
}

fn prepare(stream: TcpStream, timeout: Duration) -> Result<TcpStream, Unreachable> {
    stream.set_nodelay(true).map_err(|error| refused(&error))?;
    // The kernel drops the connection to a dead node as soon as sent bytes stay unacknowledged.
    let millis = u32::try_from(timeout.as_millis())
        .unwrap_or(u32::MAX)
        .max(1);
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
    let permit = LOOKUPS
        .acquire()
        .await
        .map_err(|_| Unreachable::because("name lookup has shut down"))?;
    let found = tokio::task::spawn_blocking(move || {
        // Held until the lookup returns, also when the caller has timed out.
        let _permit = permit;
        let found = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), port))?;
        Ok::<_, std::io::Error>(found.take(MAX_ADDRESSES).collect())
    })
    .await;
    match found {
        Ok(Ok(found)) => Ok(found),
        Ok(Err(error)) => Err(unknown_name(&error)),
        Err(error) => Err(unknown_name(&error)),
    }
}

fn unknown_name(error: &dyn std::error::Error) -> Unreachable {
    Unreachable::because(format!(
        "its name cannot be resolved: {}; add it to [peers] or use its address",
        chain(error)
    ))
}

fn refused(error: &std::io::Error) -> Unreachable {
    let hint = match error.kind() {
        std::io::ErrorKind::ConnectionRefused => "; is mainstay serving there?",
        _ => "",
    };
    Unreachable::because(format!("{error}{hint}"))
}
