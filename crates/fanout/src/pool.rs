//! A pool of connections to other nodes. After a failed attempt the pool backs off from a node,
//! longer each time, so that calls to a dead node fail at once.

use std::collections::{BTreeSet, HashMap};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use mainstay_error_chain::chain;
use mainstay_identity::tls::explain;
use rustls::ClientConfig;
use tonic::Status;
use tonic::body::Body;

use crate::dial::{Unreachable, Wire, dial};
use crate::target::Address;

/// The number of concurrent calls on a connection before another one is opened.
const CALLS_PER_CONNECTION: usize = 100;
/// The time after which an unused connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// The number of retries when a connection closes before a request is sent on it.
const MAX_RETRIES: u32 = 2;
const MIN_BACKOFF: Duration = Duration::from_millis(100);
const MAX_BACKOFF: Duration = Duration::from_secs(5);
/// Callers choose the names, so the number of remembered peers is bounded.
const MAX_PEERS: usize = 8192;

#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    peers: Mutex<HashMap<Address, Peer>>,
    tls: ArcSwap<ClientConfig>,
    revoked: ArcSwap<BTreeSet<String>>,
}

#[derive(Default)]
struct Peer {
    connections: Vec<Connected>,
    /// The attempt to connect that all waiting calls share.
    attempt: Option<Attempt>,
    backoff: Option<Backoff>,
}

type Attempt = Shared<BoxFuture<'static, Result<(), Unreachable>>>;

struct Backoff {
    error: Unreachable,
    length: Duration,
    until: Instant,
}

#[derive(Clone)]
struct Connected {
    sender: SendRequest<Body>,
    usage: Arc<Usage>,
}

#[derive(Default)]
struct Usage {
    calls: AtomicUsize,
    /// Nonzero if used since the last idle check.
    touched: AtomicUsize,
}

/// The share of one call in a connection.
struct Lease(Arc<Usage>);

impl Pool {
    pub(crate) fn new(tls: Arc<ClientConfig>) -> Self {
        Self(Arc::new(Inner {
            peers: Mutex::default(),
            tls: ArcSwap::from(tls),
            revoked: ArcSwap::default(),
        }))
    }

    /// Sets the TLS configuration of future connections.
    pub(crate) fn set_tls(&self, tls: Arc<ClientConfig>) {
        self.0.tls.store(tls);
    }

    /// Sets the revoked serial numbers; a change closes all connections, so that it applies to them
    /// too.
    pub(crate) fn set_revoked(&self, revoked: BTreeSet<String>) {
        if **self.0.revoked.load() != revoked {
            self.0.revoked.store(Arc::new(revoked));
            for peer in self.0.lock().values_mut() {
                peer.connections.clear();
            }
        }
    }

    /// Sends a request to a node, connecting within `timeout`.
    pub(crate) async fn send(
        &self,
        address: &Address,
        mut request: Request<Body>,
        timeout: Duration,
    ) -> Result<Response<Body>, Status> {
        let started = Instant::now();
        let mut retries = MAX_RETRIES;
        loop {
            let left = timeout.saturating_sub(started.elapsed());
            let (mut connected, lease) = self
                .lease(address, left, timeout)
                .await
                .map_err(unavailable)?;
            match connected.sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| Leased::body(body, lease))),
                Err(mut failed) => match failed.take_message() {
                    // Not sent: the connection closed just before.
                    Some(unsent) if retries > 0 && started.elapsed() < timeout => {
                        retries -= 1;
                        request = unsent;
                    }
                    _ => return Err(lost(&failed.into_error())),
                },
            }
        }
    }

    async fn lease(
        &self,
        address: &Address,
        left: Duration,
        timeout: Duration,
    ) -> Result<(Connected, Lease), Unreachable> {
        let started = Instant::now();
        for _ in 0..=MAX_RETRIES {
            let attempt = {
                let mut peers = self.0.lock();
                if peers.len() >= MAX_PEERS && !peers.contains_key(address) {
                    remove_unused(&mut peers);
                }
                let peer = peers.entry(address.clone()).or_default();
                if let Some(found) = peer.free_connection() {
                    return Ok(found);
                }
                match &peer.attempt {
                    Some(attempt) => attempt.clone(),
                    None => {
                        if let Some(backoff) = &peer.backoff
                            && Instant::now() < backoff.until
                        {
                            return Err(backoff.error.clone());
                        }
                        let attempt = self.attempt(address.clone(), timeout);
                        peer.attempt = Some(attempt.clone());
                        attempt
                    }
                }
            };
            match tokio::time::timeout(left.saturating_sub(started.elapsed()), attempt).await {
                Ok(connected) => connected?,
                Err(_) => return Err(Unreachable::timed_out(timeout)),
            }
        }
        Err(Unreachable::because("it closes every connection at once"))
    }

    /// Connects in a task of its own, because the first caller may cancel while others wait.
    fn attempt(&self, address: Address, timeout: Duration) -> Attempt {
        let inner = Arc::clone(&self.0);
        let running = tokio::spawn(async move {
            let (tls, revoked) = (inner.tls.load_full(), inner.revoked.load_full());
            let dialed = dial(&address, tls, &revoked, timeout).await;
            let mut peers = inner.lock();
            let peer = peers.entry(address.clone()).or_default();
            peer.attempt = None;
            match dialed {
                Ok((sender, wire)) => {
                    let usage = Arc::new(Usage::default());
                    peer.backoff = None;
                    peer.connections.push(Connected {
                        sender,
                        usage: Arc::clone(&usage),
                    });
                    tokio::spawn(keep(wire, usage, Arc::downgrade(&inner), address));
                    Ok(())
                }
                Err(error) => {
                    peer.backoff = Some(Backoff::after(peer.backoff.take(), error.clone()));
                    Err(error)
                }
            }
        });
        async move {
            running
                .await
                .unwrap_or_else(|_| Err(Unreachable::because("the attempt to connect was aborted")))
        }
        .boxed()
        .shared()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn free_connection(&mut self) -> Option<(Connected, Lease)> {
        self.connections
            .retain(|connected| !connected.sender.is_closed());
        let connected = self.connections.iter().find(|connected| {
            connected.usage.calls.load(Ordering::Relaxed) < CALLS_PER_CONNECTION
        })?;
        let lease = Lease::new(&connected.usage);
        Some((connected.clone(), lease))
    }
}

impl Backoff {
    fn after(earlier: Option<Self>, error: Unreachable) -> Self {
        let length = earlier.map_or(MIN_BACKOFF, |backoff| (backoff.length * 2).min(MAX_BACKOFF));
        Self {
            error,
            length,
            until: Instant::now() + length,
        }
    }
}

impl Lease {
    fn new(usage: &Arc<Usage>) -> Self {
        usage.calls.fetch_add(1, Ordering::Relaxed);
        usage.touched.store(1, Ordering::Relaxed);
        Self(Arc::clone(usage))
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

fn remove_unused(peers: &mut HashMap<Address, Peer>) {
    let now = Instant::now();
    peers.retain(|_, peer| {
        peer.connections
            .retain(|connected| !connected.sender.is_closed());
        let backing_off = peer
            .backoff
            .as_ref()
            .is_some_and(|backoff| now < backoff.until);
        !peer.connections.is_empty() || peer.attempt.is_some() || backing_off
    });
}

/// Drives a connection until the node closes it or it has been idle for [`IDLE_TIMEOUT`].
async fn keep(wire: Wire, usage: Arc<Usage>, pool: Weak<Inner>, address: Address) {
    let mut wire = std::pin::pin!(wire);
    while tokio::time::timeout(IDLE_TIMEOUT, wire.as_mut())
        .await
        .is_err()
    {
        let touched = usage.touched.swap(0, Ordering::Relaxed) != 0;
        if touched || usage.calls.load(Ordering::Relaxed) > 0 {
            continue;
        }
        // Dropping the last sender closes the connection.
        forget(&pool, &usage, &address);
    }
    forget(&pool, &usage, &address);
}

fn forget(pool: &Weak<Inner>, usage: &Arc<Usage>, address: &Address) {
    let Some(pool) = pool.upgrade() else { return };
    let mut peers = pool.lock();
    if let Some(peer) = peers.get_mut(address) {
        peer.connections
            .retain(|connected| !Arc::ptr_eq(&connected.usage, usage));
        if peer.connections.is_empty() && peer.attempt.is_none() && peer.backoff.is_none() {
            peers.remove(address);
        }
    }
}

// By value, as `map_err` passes it.
#[allow(clippy::needless_pass_by_value)]
fn unavailable(error: Unreachable) -> Status {
    Status::unavailable(error.to_string())
}

fn lost(error: &hyper::Error) -> Status {
    let reason = explain(error).unwrap_or_else(|| chain(error));
    Status::unavailable(format!("the connection to it was lost: {reason}"))
}

/// An answer that counts as a call on its connection until it has been read.
struct Leased {
    inner: Incoming,
    _lease: Lease,
}

impl Leased {
    fn body(inner: Incoming, lease: Lease) -> Body {
        Body::new(Self {
            inner,
            _lease: lease,
        })
    }
}

impl http_body::Body for Leased {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.inner)
            .poll_frame(cx)
            .map_err(|error| lost(&error))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl std::fmt::Debug for Pool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pool").finish_non_exhaustive()
    }
}
