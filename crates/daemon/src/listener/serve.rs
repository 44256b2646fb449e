//! A connection from accept to close: admitted, identified, served.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use mainstay_cells::Cells;
use mainstay_error_chain::chain;
use mainstay_identity::tls::explain_to_node;
use mainstay_identity::{Caller, Role, Via};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, info, warn};

use super::authority::AnyAuthority;
use super::preface;
use super::refusals::Refusals;
use crate::call::Gate;
use crate::connection::{Client, Connection, Connections, Standing, Ticket};
use crate::engines::Engines;

/// A peer is pinged this often and closed when a ping stays unanswered.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(20);
/// Calls one connection may have open at once.
const CALLS_PER_CONNECTION: u32 = 256;
/// Request headers carry metadata, not data; the most nodes a call may name fit in, with names of
/// 90 bytes each.
pub(super) const HEADER_BYTES: u32 = 512 << 10;
/// Calls of the plain listener are not forwarded.
const ANONYMOUS_HEADER_BYTES: u32 = 16 << 10;
/// Bytes buffered per call for a client that does not read.
const SEND_BYTES: usize = 64 << 10;
/// Bounds the orderly close of an idle connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes read and discarded so that a refused client still receives the TLS alert.
const DRAIN_BYTES: u64 = 64 << 10;

/// Serves connections of all listeners. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Server {
    gate: Arc<Gate>,
    connections: Arc<Connections>,
    pub tracker: TaskTracker,
    /// Cancelled when no new connections are accepted and present ones finish their calls.
    pub stop: CancellationToken,
    /// Cancelled when every connection ends at once.
    abort: CancellationToken,
    /// The UID of the daemon, which is its administrator beside root.
    own_uid: u32,
    /// Processes inside cells are not allowed to call.
    cells: Cells,
    refusals: Arc<Refusals>,
}

/// A listening socket, and how callers on it are identified.
enum Accept {
    Tls(TcpListener, TlsAcceptor),
    Unix(UnixListener),
    /// TLS on a unix socket.
    Aurae(UnixListener, TlsAcceptor),
    Pods(TcpListener),
}

/// Accepts connections until the server stops.
async fn accept(server: Server, from: Accept) {
    loop {
        let accepted = tokio::select! {
            () = server.stop.cancelled() => return,
            accepted = from.next() => accepted,
        };
        match accepted {
            Ok(Incoming::Tcp(stream, address)) => server.admit_tcp(stream, address, &from),
            Ok(Incoming::Unix(stream)) => server.admit_unix(stream, &from),
            Err(error) => {
                warn!(%error, "cannot accept a connection");
                // Usually the process is out of file descriptors: continue when one is free.
                let freed = server.connections.freed.notified();
                let _ = tokio::time::timeout(Duration::from_millis(200), freed).await;
            }
        }
        // Evicted connections get to close before the next is accepted, also in a flood.
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
            Self::Unix(listener) | Self::Aurae(listener, _) => {
                Ok(Incoming::Unix(listener.accept().await?.0))
            }
        }
    }
}

impl Server {
    pub fn new(gate: Gate, engines: &Engines) -> Self {
        Self {
            stop: gate.stop_token(),
            gate: Arc::new(gate),
            connections: Arc::clone(&engines.listeners.connections),
            tracker: TaskTracker::new(),
            abort: CancellationToken::new(),
            own_uid: rustix::process::geteuid().as_raw(),
            cells: engines.cells.clone(),
            refusals: Arc::default(),
        }
    }

    /// Accepts connections on every bound socket, in the background.
    pub fn accept_all(&self, engines: &Engines) {
        let Some(sockets) = engines.listeners.take_sockets() else {
            return;
        };
        let acceptor = TlsAcceptor::from(engines.identity.tls.config());
        if let Some(aurae) = sockets.aurae {
            let from = Accept::Aurae(aurae, acceptor.clone());
            tokio::spawn(accept(self.clone(), from));
        }
        tokio::spawn(accept(self.clone(), Accept::Tls(sockets.tls, acceptor)));
        tokio::spawn(accept(self.clone(), Accept::Unix(sockets.unix)));
        if let Some(pods) = sockets.pods {
            tokio::spawn(accept(self.clone(), Accept::Pods(pods)));
        }
    }

    /// Accepts nothing more and waits until every connection has finished its calls.
    pub async fn drain(&self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Ends every connection that is left.
    pub async fn abort(&self) {
        self.abort.cancel();
        self.tracker.wait().await;
    }

    fn admit_tcp(&self, stream: TcpStream, address: SocketAddr, from: &Accept) {
        let (client, standing) = match from {
            Accept::Tls(..) => (Client::Address(address.ip()), Standing::Handshake),
            _ => (loopback_client(&stream, address), Standing::Anonymous),
        };
        let Some(ticket) = self.connections.admit(client.clone(), standing) else {
            debug!(%address, "connection refused: too many with running calls");
            return;
        };
        let server = self.clone();
        match from {
            Accept::Tls(_, acceptor) => {
                let acceptor = acceptor.clone();
                let peer = address.to_string();
                self.tracker
                    .spawn(server.tls(stream, peer, client, ticket, acceptor));
            }
            _ => {
                let caller = Caller::loopback_read_only();
                let connection = Connection::new(caller, address.to_string(), client, ticket);
                self.tracker.spawn(server.serve(stream, connection));
            }
        }
    }

    fn admit_unix(&self, stream: UnixStream, from: &Accept) {
        let peer = match stream.peer_cred() {
            Ok(credentials) => credentials,
            Err(error) => {
                warn!(%error, "local connection refused: peer credentials are unknown");
                return;
            }
        };
        let client = Client::User(peer.uid());
        // On the socket for clients of Aurae the certificate decides, once it is known: until then an
        // administrator must get in, and anybody else is evicted first.
        let standing = match from {
            Accept::Aurae(..) => Standing::Handshake,
            _ => Standing::Privileged,
        };
        if let Some(ticket) = self.connections.admit(client.clone(), standing) {
            let server = self.clone();
            if let Accept::Aurae(_, acceptor) = from {
                let acceptor = acceptor.clone();
                self.tracker.spawn(async move {
                    // A key that root inside a cell finds must not lead out of the cell.
                    if server.is_inside_cell(peer).await {
                        info!(
                            uid = peer.uid(),
                            "connection refused: it comes from inside a cell"
                        );
                        return;
                    }
                    let from = "unix".to_owned();
                    server.tls(stream, from, client, ticket, acceptor).await;
                });
                return;
            }
            self.tracker.spawn(async move {
                let caller = server.local_caller(peer).await;
                let connection = Connection::new(caller, "unix".to_owned(), client, ticket);
                // Clients of gRPC-core send the path of the socket as authority.
                server.serve(AnyAuthority::new(stream), connection).await;
            });
        }
    }

    /// Identifies the peer of the unix socket by its kernel credentials.
    async fn local_caller(&self, peer: UCred) -> Caller {
        if self.is_inside_cell(peer).await {
            Caller::inside_cell(peer.uid())
        } else {
            Caller::from_uid(peer.uid(), self.own_uid)
        }
    }

    async fn is_inside_cell(&self, peer: UCred) -> bool {
        let cells = self.cells.clone();
        // A PID of 0 is outside our PID namespace, and so in no cell.
        let pid = peer.pid().filter(|pid| *pid != 0);
        let inside = tokio::task::spawn_blocking(move || pid.is_some_and(|pid| cells.owns(pid)));
        inside.await.unwrap_or(true)
    }

    /// Serves a connection whose caller is identified by a certificate. It counts for `client`
    /// until then.
    async fn tls<S>(self, stream: S, peer: String, client: Client, ticket: Ticket, tls: TlsAcceptor)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let bound = self.connections.limits().handshake_timeout;
        let handshake = tls.accept(stream).into_fallible();
        let stream = tokio::select! {
            () = self.stop.cancelled() => return,
            () = ticket.evicted() => return,
            done = tokio::time::timeout(bound, handshake) => match done {
                Ok(Ok(stream)) => stream,
                Ok(Err((error, stream))) => {
                    let why = explain_to_node(&error).unwrap_or_else(|| chain(&error));
                    self.refusals.log(&peer, &why);
                    let closed = tokio::time::timeout(CLOSE_TIMEOUT, close_after_alert(stream));
                    tokio::select! {
                        () = ticket.evicted() => {}
                        _ = closed => {}
                    }
                    return;
                }
                Err(_) => {
                    self.refusals.log(&peer, "it was not finished in time");
                    return;
                }
            },
        };
        let certificate = stream
            .get_ref()
            .1
            .peer_certificates()
            .and_then(<[_]>::first);
        // The verifier requires a certificate; without one there is no caller all the same.
        let caller = match certificate.map(|der| Caller::from_certificate(der)) {
            Some(Ok(caller)) => caller,
            Some(Err(error)) => {
                info!(
                    from = peer,
                    error = chain(&error),
                    "cannot read the client certificate"
                );
                return;
            }
            None => return,
        };
        let client = match &caller.via {
            Via::Certificate { fingerprint, .. } => {
                Client::Certificate(fingerprint.as_str().into())
            }
            _ => client,
        };
        let standing = match caller.role {
            Some(Role::Admin) => Standing::Privileged,
            _ if caller.is_node => Standing::Privileged,
            _ => Standing::Ordinary,
        };
        if !ticket.identify(client.clone(), standing) {
            info!(from = peer, who = %caller, "connection refused: too many with running calls");
            return;
        }
        let connection = Connection::new(caller, peer, client, ticket);
        self.serve(stream, connection).await;
    }

    async fn serve<S>(self, stream: S, connection: Connection)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let bound = self.connections.limits().handshake_timeout;
        let stream = tokio::select! {
            () = self.stop.cancelled() => return,
            () = connection.ticket.evicted() => return,
            read = tokio::time::timeout(bound, preface::read(stream)) => match read {
                Ok(Ok(stream)) => stream,
                Ok(Err(error)) => {
                    debug!(from = connection.peer, %error, "connection ended");
                    return;
                }
                Err(_) => {
                    debug!(from = connection.peer, "connection ended: no HTTP/2 preface in time");
                    return;
                }
            },
        };
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
            .max_header_list_size(if connection.caller.via == Via::LoopbackReadOnly {
                ANONYMOUS_HEADER_BYTES
            } else {
                HEADER_BYTES
            })
            .max_send_buf_size(SEND_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        let mut serving = std::pin::pin!(serving);

        let ended = tokio::select! {
            ended = &mut serving => ended,
            () = self.abort.cancelled() => return,
            () = connection.ticket.evicted() => {
                serving.as_mut().graceful_shutdown();
                match tokio::time::timeout(CLOSE_TIMEOUT, serving).await {
                    Ok(ended) => ended,
                    Err(_) => return,
                }
            }
            () = self.stop.cancelled() => {
                serving.as_mut().graceful_shutdown();
                // Without a call there is nothing to wait for but the close itself.
                let bound = if connection.ticket.is_idle() { CLOSE_TIMEOUT } else { Duration::MAX };
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
            debug!(
                from = connection.peer,
                error = chain(&error),
                "connection ended"
            );
        }
    }
}

/// Returns the client of a connection to the plain listener: a user of this machine, who has any
/// number of loopback addresses to connect from.
fn loopback_client(stream: &TcpStream, address: SocketAddr) -> Client {
    let owner = stream
        .local_addr()
        .and_then(|own| mainstay_node::sockets::owner_of_tcp(address, own));
    // Without an answer of the kernel all of them are one client.
    Client::Loopback(owner.unwrap_or_default())
}

/// Closes a refused connection so that the peer receives the alert: closing a socket with unread
/// bytes resets it, and the reset would overtake the alert.
async fn close_after_alert<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S) {
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
            Self::Aurae(..) => "Accept::Aurae",
            Self::Pods(_) => "Accept::Pods",
        })
    }
}
