//! Connections to other nodes, kept and shared. A node that cannot be reached is left alone for a
//! moment, longer each time, so that a dead node costs the next calls nothing.

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
use mainstay_identity::tls::explain;
use rustls::ClientConfig;
use tonic::Status;
use tonic::body::Body;

use crate::dial::{Unreachable, Wire, dial};
use crate::target::Address;

/// A node serves this many calls and more on one connection; beyond it another one is opened.
const CALLS_PER_CONNECTION: usize = 100;
/// A connection nobody has used for so long is closed.
const IDLE: Duration = Duration::from_secs(60);
/// A connection may end while it is picked. A node that ends every new one, too, has failed.
const RETRIES: u32 = 2;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);
/// Callers choose the names; what is remembered of them is bounded.
const MOST_PEERS: usize = 8192;

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
    /// One attempt at a time, whoever waits for it.
    attempt: Option<Attempt>,
    pause: Option<Pause>,
}

type Attempt = Shared<BoxFuture<'static, Result<(), Unreachable>>>;

struct Pause {
    why: Unreachable,
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
    /// Used since somebody last looked.
    touched: AtomicUsize,
}

/// A place for one call on a connection.
struct Lease(Arc<Usage>);

impl Pool {
    pub(crate) fn new(tls: Arc<ClientConfig>) -> Self {
        Self(Arc::new(Inner {
            peers: Mutex::default(),
            tls: ArcSwap::from(tls),
            revoked: ArcSwap::default(),
        }))
    }

    /// For connections made from now on.
    pub(crate) fn set_tls(&self, tls: Arc<ClientConfig>) {
        self.0.tls.store(tls);
    }

    /// Connections that are there are made anew if this changes, so that it holds for them too.
    pub(crate) fn set_revoked(&self, revoked: BTreeSet<String>) {
        if **self.0.revoked.load() != revoked {
            self.0.revoked.store(Arc::new(revoked));
            for peer in self.0.lock().values_mut() {
                peer.connections.clear();
            }
        }
    }

    /// Sends a request to a node that has to be reached within `bound`.
    pub(crate) async fn send(
        &self,
        address: &Address,
        mut request: Request<Body>,
        bound: Duration,
    ) -> Result<Response<Body>, Status> {
        let began = Instant::now();
        let mut retries = RETRIES;
        loop {
            let left = bound.saturating_sub(began.elapsed());
            let (mut connected, lease) = self.lease(address, left, bound).await.map_err(told)?;
            match connected.sender.try_send_request(request).await {
                Ok(response) => return Ok(response.map(|body| Leased::body(body, lease))),
                Err(mut failed) => match failed.take_message() {
                    // It has not been sent: the connection ended just before.
                    Some(unsent) if retries > 0 && began.elapsed() < bound => {
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
        bound: Duration,
    ) -> Result<(Connected, Lease), Unreachable> {
        let began = Instant::now();
        for _ in 0..=RETRIES {
            let attempt = {
                let mut peers = self.0.lock();
                if peers.len() >= MOST_PEERS && !peers.contains_key(address) {
                    forget_the_useless(&mut peers);
                }
                let peer = peers.entry(address.clone()).or_default();
                if let Some(found) = peer.free_connection() {
                    return Ok(found);
                }
                match &peer.attempt {
                    Some(attempt) => attempt.clone(),
                    None => {
                        if let Some(pause) = &peer.pause
                            && Instant::now() < pause.until
                        {
                            return Err(pause.why.clone());
                        }
                        let attempt = self.attempt(address.clone(), bound);
                        peer.attempt = Some(attempt.clone());
                        attempt
                    }
                }
            };
            match tokio::time::timeout(left.saturating_sub(began.elapsed()), attempt).await {
                Ok(connected) => connected?,
                Err(_) => return Err(Unreachable::in_time(bound)),
            }
        }
        Err(Unreachable::because("it ends every connection at once"))
    }

    /// Runs on its own: whoever asked first may go away while others still wait.
    fn attempt(&self, address: Address, bound: Duration) -> Attempt {
        let inner = Arc::clone(&self.0);
        let running = tokio::spawn(async move {
            let (tls, revoked) = (inner.tls.load_full(), inner.revoked.load_full());
            let dialed = dial(&address, tls, &revoked, bound).await;
            let mut peers = inner.lock();
            let peer = peers.entry(address.clone()).or_default();
            peer.attempt = None;
            match dialed {
                Ok((sender, wire)) => {
                    let usage = Arc::new(Usage::default());
                    peer.pause = None;
                    peer.connections.push(Connected {
                        sender,
                        usage: Arc::clone(&usage),
                    });
                    tokio::spawn(keep(wire, usage, Arc::downgrade(&inner), address));
                    Ok(())
                }
                Err(why) => {
                    peer.pause = Some(Pause::after(peer.pause.take(), why.clone()));
                    Err(why)
                }
            }
        });
        async move {
            running
                .await
                .unwrap_or_else(|_| Err(Unreachable::because("connecting failed")))
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

impl Pause {
    fn after(earlier: Option<Self>, why: Unreachable) -> Self {
        let length = earlier.map_or(FIRST_PAUSE, |pause| (pause.length * 2).min(LONGEST_PAUSE));
        Self {
            why,
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

fn forget_the_useless(peers: &mut HashMap<Address, Peer>) {
    let now = Instant::now();
    peers.retain(|_, peer| {
        peer.connections
            .retain(|connected| !connected.sender.is_closed());
        let paused = peer.pause.as_ref().is_some_and(|pause| now < pause.until);
        !peer.connections.is_empty() || peer.attempt.is_some() || paused
    });
}

/// Drives a connection to its end, which comes when the node ends it or nobody uses it.
async fn keep(wire: Wire, usage: Arc<Usage>, pool: Weak<Inner>, address: Address) {
    let mut wire = std::pin::pin!(wire);
    while tokio::time::timeout(IDLE, wire.as_mut()).await.is_err() {
        let touched = usage.touched.swap(0, Ordering::Relaxed) != 0;
        if touched || usage.calls.load(Ordering::Relaxed) > 0 {
            continue;
        }
        // Without its sender the connection ends by itself.
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
        if peer.connections.is_empty() && peer.attempt.is_none() && peer.pause.is_none() {
            peers.remove(address);
        }
    }
}

// By value: it is what `map_err` hands over.
#[allow(clippy::needless_pass_by_value)]
fn told(why: Unreachable) -> Status {
    Status::unavailable(why.to_string())
}

fn lost(error: &hyper::Error) -> Status {
    let why = explain(error).unwrap_or_else(|| {
        let mut text = error.to_string();
        let mut source = std::error::Error::source(error);
        while let Some(cause) = source {
            text = cause.to_string();
            source = cause.source();
        }
        text
    });
    Status::unavailable(format!("the connection to it was lost: {why}"))
}

/// An answer that holds its place on the connection until it has been read.
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
