//! The life of a connection: admitted, identified, served, closed.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mainstay_cells::Cells;
use mainstay_identity::tls::explain_to_node;
use mainstay_identity::{Caller, Via};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::connections::{Client, Connections, Ticket};
use super::refusals::Refusals;
use crate::call::{Connection, Gate};

/// A peer that does not answer a ping for this long is gone.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls one connection may have open at once.
const CALLS_PER_CONNECTION: u32 = 256;
/// Request headers carry metadata, not data; a thousand nodes can be named in them.
const HEADER_BYTES: u32 = 128 << 10;
/// What one call may have waiting for a client that does not read.
const SEND_BYTES: usize = 64 << 10;
/// How long an idle connection that has to go may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(1);
/// What is read and thrown away so that a refused client still gets to see why.
const DRAIN_BYTES: u64 = 64 << 10;

/// Everything the listeners share.
#[derive(Debug, Clone)]
pub struct Door {
    pub gate: Arc<Gate>,
    pub connections: Arc<Connections>,
    pub tracker: TaskTracker,
    /// No new connections, and the present ones finish their calls.
    pub stop: CancellationToken,
    /// Whatever is still there ends now.
    pub abort: CancellationToken,
    /// The user that runs the daemon, who is its administrator beside root.
    own_uid: u32,
    /// Whose processes have no business here.
    cells: Cells,
    refusals: Arc<Refusals>,
}

/// Where connections come from, and how their caller becomes known.
pub enum Accept {
    Tls(TcpListener, TlsAcceptor),
    Unix(UnixListener),
    Pods(TcpListener),
}

/// Takes connections until the door is told to stop.
pub async fn accept(door: Door, from: Accept) {
    loop {
        let accepted = tokio::select! {
            () = door.stop.cancelled() => return,
            accepted = from.next() => accepted,
        };
        match accepted {
            Ok(Incoming::Tcp(stream, address)) => door.admit_tcp(stream, address, &from),
            Ok(Incoming::Unix(stream)) => door.admit_unix(stream),
            Err(error) => {
                warn!(%error, "a connection could not be accepted");
                // Most often the process is out of descriptors: go on when one is free.
                let freed = door.connections.freed.notified();
                let _ = tokio::time::timeout(Duration::from_millis(200), freed).await;
            }
        }
        // Whoever had to make room gets to close before the next is let in, also in a flood.
        tokio::task::yield_now().await;
    }
}

enum Incoming {
    Tcp(TcpStream, SocketAddr),
    Unix(UnixStream),
}

impl Accept {
    async fn next(&self) -> std::io::Result<Incoming> {
        match self {
            Self::Tls(listener, _) | Self::Pods(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                Ok(Incoming::Tcp(stream, address))
            }
            Self::Unix(listener) => Ok(Incoming::Unix(listener.accept().await?.0)),
        }
    }
}

impl Door {
    pub fn new(
        gate: Gate,
        connections: Arc<Connections>,
        cells: Cells,
        stop: CancellationToken,
    ) -> Self {
        Self {
            gate: Arc::new(gate),
            connections,
            tracker: TaskTracker::new(),
            stop,
            abort: CancellationToken::new(),
            own_uid: rustix::process::geteuid().as_raw(),
            cells,
            refusals: Arc::default(),
        }
    }

    fn admit_tcp(&self, stream: TcpStream, address: SocketAddr, from: &Accept) {
        let Some(ticket) = self.connections.admit(Client::Address(address.ip())) else {
            debug!(%address, "connection refused: too many with running calls");
            return;
        };
        let door = self.clone();
        match from {
            Accept::Tls(_, acceptor) => {
                let acceptor = acceptor.clone();
                self.tracker
                    .spawn(door.tls(stream, address, ticket, acceptor));
            }
            _ => {
                let connection =
                    Connection::new(Caller::loopback_read_only(), address.to_string(), ticket);
                self.tracker.spawn(door.serve(stream, connection));
            }
        }
    }

    fn admit_unix(&self, stream: UnixStream) {
        let peer = match stream.peer_cred() {
            Ok(credentials) => credentials,
            Err(error) => {
                warn!(%error, "the user behind a local connection is unknown; refused");
                return;
            }
        };
        if let Some(ticket) = self.connections.admit(Client::User(peer.uid())) {
            let door = self.clone();
            self.tracker.spawn(async move {
                let caller = door.local_caller(peer).await;
                let connection = Connection::new(caller, "unix".to_owned(), ticket);
                door.serve(stream, connection).await;
            });
        }
    }

    /// The kernel's word on who is at the other end of the local socket.
    async fn local_caller(&self, peer: UCred) -> Caller {
        let cells = self.cells.clone();
        // Without a number it is in none of our namespaces, and so in no cell.
        let pid = peer.pid().filter(|pid| *pid != 0);
        let inside = tokio::task::spawn_blocking(move || pid.is_some_and(|pid| cells.owns(pid)));
        if inside.await.unwrap_or(true) {
            Caller::inside_cell(peer.uid())
        } else {
            Caller::from_uid(peer.uid(), self.own_uid)
        }
    }

    async fn tls(self, stream: TcpStream, address: SocketAddr, ticket: Ticket, tls: TlsAcceptor) {
        let bound = self.connections.limits().handshake_timeout;
        let handshake = tls.accept(stream).into_fallible();
        let stream = tokio::select! {
            () = self.stop.cancelled() => return,
            () = ticket.evicted() => return,
            done = tokio::time::timeout(bound, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err((error, stream))) => {
                    let why = explain_to_node(&error).unwrap_or_else(|| error.to_string());
                    self.refusals.tell(address, &why);
                    let goodbye = tokio::time::timeout(GOODBYE, say_goodbye(stream));
                    tokio::select! {
                        () = ticket.evicted() => {}
                        _ = goodbye => {}
                    }
                    return;
                }
                Err(_) => {
                    self.refusals.tell(address, "it was not finished in time");
                    return;
                }
            },
        };
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first);
        // The verifier requires a certificate, so there is one; no caller without it all the same.
        let caller = match certificate.map(|der| Caller::from_certificate(der)) {
            Some(Ok(caller)) => caller,
            Some(Err(error)) => {
                info!(from = %address, %error, "client certificate cannot be read");
                return;
            }
            None => return,
        };
        if let Via::Certificate { fingerprint, .. } = &caller.via
            && !ticket.identify(Client::Certificate(fingerprint.as_str().into()))
        {
            info!(from = %address, who = %caller, "connection refused: too many with running calls");
            return;
        }
        self.serve(stream, Connection::new(caller, address.to_string(), ticket))
            .await;
    }

    async fn serve<S>(self, stream: S, connection: Connection)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let connection = Arc::new(connection);
        let (gate, owner) = (Arc::clone(&self.gate), Arc::clone(&connection));
        let service = hyper::service::service_fn(move |request| {
            let (gate, connection) = (Arc::clone(&gate), Arc::clone(&owner));
            async move { Ok::<_, std::convert::Infallible>(gate.handle(&connection, request).await) }
        });
        let serving = http2::Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(KEEPALIVE_INTERVAL)
            .keep_alive_timeout(KEEPALIVE_TIMEOUT)
            .max_concurrent_streams(CALLS_PER_CONNECTION)
            .max_header_list_size(HEADER_BYTES)
            .max_send_buf_size(SEND_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);

        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = self.abort.cancelled() => return,
            () = connection.ticket().evicted() => {
                serving.as_mut().graceful_shutdown();
                match tokio::time::timeout(GOODBYE, serving).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
            () = self.stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                // Without a call there is nothing to wait for but the goodbye itself.
                let bound = if connection.ticket().is_idle() { GOODBYE } else { Duration::MAX };
                tokio::select! {
                    ended = tokio::time::timeout(bound, serving) => match ended {
                        Ok(ended) => ended,
                        Err(_) => return,
                    },
                    () = self.abort.cancelled() => return,
                }
            }
        };
        if let Err(error) = ended {
            debug!(from = connection.from(), %error, "connection ended");
        }
    }
}

/// Closing a socket with unread bytes resets it, and the reset would overtake the alert that says
/// what was wrong. So: stop writing, and read on until the other side has closed too.
async fn say_goodbye(mut stream: TcpStream) {
    if stream.shutdown().await.is_ok() {
        let mut rest = stream.take(DRAIN_BYTES);
        let _ = tokio::io::copy(&mut rest, &mut tokio::io::sink()).await;
    }
}

impl std::fmt::Debug for Accept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Tls(..) => "Accept::Tls",
            Self::Unix(_) => "Accept::Unix",
            Self::Pods(_) => "Accept::Pods",
        })
    }
}
