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
use futures_util::future::{BoxFuture, Shared, WeakShared};
use http::{Request, Response};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http2::SendRequest;
use mainstay_error_chain::chain;
use mainstay_identity::tls::explain;
use rustls::ClientConfig;
use tonic::Status;
use tonic::body::Body;

use crate::dial::{Unreachable, Window, Wire, dial};
use crate::limits::{CallLimits, DialPermit};
use crate::quota::Charge;
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
/// Connection attempts of a call wait at most this many connect timeouts for their turn.
const MAX_DIAL_ROUNDS: u32 = 5;

#[derive(Clone)]
pub(crate) struct Pool(Arc<Inner>);

struct Inner {
    peers: Mutex<HashMap<Key, Peer>>,
    tls: ArcSwap<ClientConfig>,
    revoked: ArcSwap<BTreeSet<String>>,
}

/// A connection serves streams of one window size.
type Key = (Address, Window);

#[derive(Default)]
struct Peer {
    connections: Vec<Connected>,
    /// The attempt to connect that all waiting calls share. It ends when none waits any more.
    attempt: Option<WeakShared<Connecting>>,
    backoff: Option<Backoff>,
}

type Connecting = BoxFuture<'static, Result<(), Unreachable>>;
type Attempt = Shared<Connecting>;

/// How a call gets a connection.
enum Found {
    Connected(Connected, Lease),
    Attempt(Attempt),
    BackingOff(Unreachable),
    Nothing,
}

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

    /// Sends a request to a node, connecting within `timeout`. The request is made when there is a
    /// connection for it.
    pub(crate) async fn send(
        &self,
        address: &Address,
        window: Window,
        request: impl FnOnce() -> Result<Request<Body>, Status>,
        limits: &CallLimits,
        timeout: Duration,
    ) -> Result<Response<Body>, Status> {
        let key = (address.clone(), window);
        let started = Instant::now();
        let lease = || self.lease(&key, limits, timeout);
        let (mut connected, mut leased) = lease().await.map_err(unavailable)?;
        let memory = limits.memory(window.bytes()).await?;
        let mut request = request()?;
        let mut retries = MAX_RETRIES;
        loop {
            match connected.sender.try_send_request(request).await {
                Ok(response) => {
                    return Ok(response.map(|body| Leased::body(body, leased, memory)));
                }
                Err(mut failed) => match failed.take_message() {
                    // Not sent: the connection closed just before.
                    Some(unsent) if retries > 0 && started.elapsed() < timeout => {
                        retries -= 1;
                        request = unsent;
                    }
                    _ => return Err(lost(&failed.into_error())),
                },
            }
            (connected, leased) = lease().await.map_err(unavailable)?;
        }
    }

    async fn lease(
        &self,
        key: &Key,
        limits: &CallLimits,
        timeout: Duration,
    ) -> Result<(Connected, Lease), Unreachable> {
        let mut permit = None;
        let mut attempts = 0;
        while attempts <= MAX_RETRIES {
            let attempt = match self.find(key, &mut permit, timeout) {
                Found::Connected(connected, lease) => return Ok((connected, lease)),
                Found::BackingOff(error) => return Err(error),
                Found::Attempt(attempt) => attempt,
                Found::Nothing => {
                    permit = Some(limits.dial(timeout.saturating_mul(MAX_DIAL_ROUNDS)).await?);
                    continue;
                }
            };
            permit = None;
            attempts += 1;
            // Every attempt ends within its timeout.
            attempt.await?;
        }
        Err(Unreachable::because("it closes every connection at once"))
    }

    /// Looks for a connection or an attempt to connect; starts one if there is a permit for it.
    fn find(&self, key: &Key, permit: &mut Option<DialPermit>, timeout: Duration) -> Found {
        let mut peers = self.0.lock();
        if peers.len() >= MAX_PEERS && !peers.contains_key(key) {
            remove_unused(&mut peers);
        }
        let peer = peers.entry(key.clone()).or_default();
        if let Some((connected, lease)) = peer.free_connection() {
            return Found::Connected(connected, lease);
        }
        if let Some(attempt) = peer.attempt() {
            return Found::Attempt(attempt);
        }
        if let Some(backoff) = &peer.backoff
            && Instant::now() < backoff.until
        {
            return Found::BackingOff(backoff.error.clone());
        }
        let Some(permit) = permit.take() else {
            return Found::Nothing;
        };
        let attempt = self.attempt(key.clone(), permit, timeout);
        peer.attempt = attempt.downgrade();
        Found::Attempt(attempt)
    }

    /// Connects as long as a call waits for it: it is no task of its own, so that a caller that
    /// goes away leaves no open socket behind.
    fn attempt(&self, key: Key, permit: DialPermit, timeout: Duration) -> Attempt {
        let inner = Arc::clone(&self.0);
        async move {
            let (tls, revoked) = (inner.tls.load_full(), inner.revoked.load_full());
            let (address, window) = &key;
            let dialed = dial(address, *window, tls, &revoked, timeout).await;
            drop(permit);
            let mut peers = inner.lock();
            let peer = peers.entry(key.clone()).or_default();
            peer.attempt = None;
            match dialed {
                Ok((sender, wire)) => {
                    let usage = Arc::new(Usage::default());
                    peer.backoff = None;
                    peer.connections.push(Connected {
                        sender,
                        usage: Arc::clone(&usage),
                    });
                    drop(peers);
                    tokio::spawn(keep(wire, usage, Arc::downgrade(&inner), key));
                    Ok(())
                }
                Err(error) => {
                    peer.backoff = Some(Backoff::after(peer.backoff.take(), error.clone()));
                    Err(error)
                }
            }
        }
        .boxed()
        .shared()
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, HashMap<Key, Peer>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    /// Returns the running attempt, unless all calls that waited for it are gone.
    fn attempt(&self) -> Option<Attempt> {
        self.attempt.as_ref().and_then(WeakShared::upgrade)
    }

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

fn remove_unused(peers: &mut HashMap<Key, Peer>) {
    let now = Instant::now();
    peers.retain(|_, peer| {
        peer.connections
            .retain(|connected| !connected.sender.is_closed());
        let backing_off = peer
            .backoff
            .as_ref()
            .is_some_and(|backoff| now < backoff.until);
        !peer.connections.is_empty() || peer.attempt().is_some() || backing_off
    });
}

/// Drives a connection until the node closes it or it has been idle for [`IDLE_TIMEOUT`].
async fn keep(wire: Wire, usage: Arc<Usage>, pool: Weak<Inner>, key: Key) {
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
        forget(&pool, &usage, &key);
    }
    forget(&pool, &usage, &key);
}

fn forget(pool: &Weak<Inner>, usage: &Arc<Usage>, key: &Key) {
    let Some(pool) = pool.upgrade() else { return };
    let mut peers = pool.lock();
    if let Some(peer) = peers.get_mut(key) {
        peer.connections
            .retain(|connected| !Arc::ptr_eq(&connected.usage, usage));
        if peer.connections.is_empty() && peer.attempt().is_none() && peer.backoff.is_none() {
            peers.remove(key);
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
    /// For the bytes that the window lets the node send unread.
    _memory: Charge,
}

impl Leased {
    fn body(inner: Incoming, lease: Lease, memory: Charge) -> Body {
        Body::new(Self {
            inner,
            _lease: lease,
            _memory: memory,
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
