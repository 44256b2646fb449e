//! Routing of a call: to this node, to one other node, or to many.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream;
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body::Frame;
use http_body_util::{BodyExt, Full, StreamBody};
use rustls::ClientConfig;
use tonic::Status;
use tonic::body::Body;

use crate::chunks::{Chunk, Chunks};
use crate::contract::Contract;
use crate::dial::Window;
use crate::gather::{NodeCall, gather, no_answer};
use crate::held::hold;
use crate::interleave::{MAX_UNCOUNTED_BYTES, interleave};
use crate::limits::{CallLimits, LOCAL_STREAM_BYTES, Limits};
use crate::merge::NodeTag;
use crate::outgoing::{Asker, Outgoing, PROXY_FROM};
use crate::pool::Pool;
use crate::quota::Use;
use crate::target::Address;
use crate::target::Target;
use crate::targets::{OwnAddresses, Place, Targets};

/// The maximum number of nodes in a call.
const MAX_NODES: usize = 4096;

/// Settings that can change while the node runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The nodes that calls are forwarded to.
    pub targets: Targets,
    /// The port of a node whose name has none.
    pub port: u16,
    pub connect_timeout: Duration,
    /// The time a node has to answer if the caller sets no deadline.
    pub answer_timeout: Duration,
    /// Nodes by name, for fleets without a name service.
    pub peers: BTreeMap<String, Address>,
    /// Serial numbers of revoked certificates.
    pub revoked: BTreeSet<String>,
    /// The name of this node, and the address it listens on.
    pub own_name: String,
    pub own_address: SocketAddr,
}

/// Answers a call on this node itself.
pub type Local = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// The route of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forward {
    Here,
    /// To one node, whose answer is passed on unchanged.
    One(String, Place),
    /// To each of these nodes; the answers are merged.
    Many(Vec<(String, Place)>),
}

impl Forward {
    /// Returns the nodes as the caller named them, for the log; only the first of very many.
    pub fn shown(&self) -> String {
        const MAX_BYTES: usize = 200;
        match self {
            Self::Here => String::new(),
            Self::One(name, _) => name.clone(),
            Self::Many(places) => {
                let mut shown = String::new();
                for (name, _) in places {
                    if shown.len() + name.len() > MAX_BYTES {
                        return format!("{shown},… ({} in all)", places.len());
                    }
                    if !shown.is_empty() {
                        shown.push(',');
                    }
                    shown.push_str(name);
                }
                shown
            }
        }
    }
}

pub struct Fanout {
    settings: ArcSwap<Settings>,
    pool: Pool,
    limits: Limits,
    descriptors: &'static [u8],
    /// Built when the first call needs it.
    contract: OnceLock<Arc<Contract>>,
    local: Local,
    own_addresses: fn() -> Vec<IpAddr>,
}

impl Fanout {
    /// `descriptors` is the contract as an encoded `FileDescriptorSet`; `tls` carries the node's
    /// own certificate.
    pub fn new(
        settings: Settings,
        tls: Arc<ClientConfig>,
        descriptors: &'static [u8],
        own_addresses: fn() -> Vec<IpAddr>,
        local: Local,
    ) -> Self {
        let pool = Pool::new(tls);
        pool.set_revoked(settings.revoked.clone());
        Self {
            settings: ArcSwap::from_pointee(settings),
            pool,
            limits: Limits::default(),
            descriptors,
            contract: OnceLock::new(),
            local,
            own_addresses,
        }
    }

    pub fn set_settings(&self, settings: Settings) {
        self.pool.set_revoked(settings.revoked.clone());
        self.settings.store(Arc::new(settings));
    }

    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Sets the TLS configuration of future connections.
    pub fn set_tls(&self, tls: Arc<ClientConfig>) {
        self.pool.set_tls(tls);
    }

    /// Returns the route of the call with these headers.
    pub fn route(&self, headers: &HeaderMap) -> Result<Forward, Status> {
        if headers.contains_key(PROXY_FROM) {
            return Ok(Forward::Here);
        }
        let settings = self.settings.load();
        let mut own = OwnAddresses::unknown(self.own_addresses);
        let mut place = |value: &HeaderValue| {
            let text = value.to_str().unwrap_or("\u{fffd}");
            let target =
                Target::parse(text).map_err(|bad| Status::invalid_argument(bad.to_string()))?;
            Ok::<_, Status>((text.to_owned(), settings.place(&target, &mut own)))
        };
        let mut nodes = headers.get_all("nodes").iter().peekable();
        if nodes.peek().is_some() {
            let count = headers.get_all("nodes").iter().count();
            if count > MAX_NODES {
                return Err(Status::invalid_argument(format!(
                    "the call names {count} nodes; the most is {MAX_NODES}"
                )));
            }
            let places = nodes.map(&mut place).collect::<Result<Vec<_>, _>>()?;
            return Ok(Forward::Many(places));
        }
        let mut node = headers.get_all("node").iter();
        match (node.next(), node.next()) {
            (None, _) => Ok(Forward::Here),
            (Some(value), None) => {
                let (name, place) = place(value)?;
                match place {
                    Place::Refused(refusal) => Err(refusal.status()),
                    place => Ok(Forward::One(name, place)),
                }
            }
            (Some(_), Some(_)) => Err(Status::invalid_argument(
                "`node` names one node; use `nodes` for several",
            )),
        }
    }

    /// Returns the answer of one node unchanged.
    pub async fn pass_on(
        &self,
        place: Place,
        request: Request<Body>,
        asker: &Asker,
        timeout: Option<Duration>,
    ) -> Result<Response<Body>, Status> {
        let address = match place {
            Place::Here => return Ok((self.local)(request).await),
            Place::There(address) => address,
            Place::Refused(refusal) => return Err(refusal.status()),
        };
        let settings = self.settings.load_full();
        let (parts, body) = request.into_parts();
        let outgoing = Outgoing::new(&parts.uri, &parts.headers, asker, &settings.own_name)?;
        // A method whose messages cannot be merged may be a stream.
        let used_for = match self.contract().method(parts.uri.path()) {
            Some(method) if !method.streams => Use::Unary,
            _ => Use::Stream,
        };
        let limits = self.limits.call(&asker.account, used_for, 1)?;
        let request = || outgoing.to(&address, body, timeout);
        let answer = self.pool.send(
            &address,
            Window::of_call(1),
            request,
            &limits,
            settings.connect_timeout,
        );
        match timeout {
            None => answer.await,
            Some(timeout) => tokio::time::timeout(timeout, answer)
                .await
                .unwrap_or_else(|_| Err(no_answer(timeout))),
        }
    }

    /// Returns the merged answer of all these nodes.
    pub async fn ask_all(
        &self,
        places: Vec<(String, Place)>,
        request: Request<Body>,
        asker: &Asker,
        timeout: Option<Duration>,
    ) -> Result<Response<Body>, Status> {
        let contract = self.contract();
        let Some(method) = contract.method(request.uri().path()) else {
            return Err(Status::unimplemented(
                "the answers of several nodes to this method cannot be merged; call one node, with \
                 `node` in the metadata",
            ));
        };
        let settings = self.settings.load_full();
        let (parts, body) = request.into_parts();
        let outgoing = Outgoing::new(&parts.uri, &parts.headers, asker, &settings.own_name)?;
        let outgoing = Arc::new(outgoing);
        let used_for = if method.streams {
            Use::Stream
        } else {
            Use::Unary
        };
        let limits = self.limits.call(&asker.account, used_for, places.len())?;
        let window = Window::of_call(places.len());
        // Thousands of names: they are in `places`.
        drop(parts);
        let body = counted(body.collect().await?.to_bytes(), &limits).await?;
        let answer_timeout = timeout.map_or(settings.answer_timeout, before);
        // A stream has no end to wait for: only the caller's deadline bounds it.
        let deadline = if method.streams {
            timeout.map(before)
        } else {
            Some(answer_timeout)
        };
        let calls = places
            .into_iter()
            .map(|(name, place)| NodeCall {
                tag: NodeTag::new(&name),
                here: place == Place::Here,
                answer: match place {
                    Place::Here => self.ask_here(
                        &outgoing,
                        body.clone(),
                        &limits,
                        (!method.streams).then_some(answer_timeout),
                    ),
                    Place::There(address) => {
                        let pool = self.pool.clone();
                        let (outgoing, limits) = (Arc::clone(&outgoing), limits.clone());
                        let body = body.clone();
                        let connect_timeout = settings.connect_timeout;
                        async move {
                            let request = || {
                                let body = Body::new(Full::new(body));
                                outgoing.to(&address, body, deadline)
                            };
                            pool.send(&address, window, request, &limits, connect_timeout)
                                .await
                        }
                        .boxed()
                    }
                    Place::Refused(refusal) => std::future::ready(Err(refusal.status())).boxed(),
                },
            })
            .collect();
        let body = if method.streams {
            interleave(contract, method, calls, &limits, answer_timeout)
        } else {
            let merged = gather(contract, method, calls, &limits, answer_timeout).await;
            one_message(merged, limits)?
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        Ok(response)
    }

    /// Answers for this node itself, when it is its turn; a unary call has a timeout.
    fn ask_here(
        &self,
        outgoing: &Arc<Outgoing>,
        body: Bytes,
        limits: &CallLimits,
        timeout: Option<Duration>,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let (outgoing, limits) = (Arc::clone(outgoing), limits.clone());
        let local = Arc::clone(&self.local);
        let began = Instant::now();
        async move {
            let permit = limits.local().await?;
            let memory = match timeout {
                None => Some(limits.memory(LOCAL_STREAM_BYTES).await?),
                // All turns come at once when the timeout of the call has passed.
                Some(timeout) if began.elapsed() >= timeout => return Err(no_answer(timeout)),
                Some(_) => None,
            };
            let response = local(outgoing.here(Body::new(Full::new(body)))).await;
            Ok(response.map(|body| hold(body, (permit, memory))))
        }
        .boxed()
    }

    fn contract(&self) -> &Arc<Contract> {
        self.contract
            .get_or_init(|| Arc::new(Contract::from_descriptors(self.descriptors)))
    }
}

/// Returns the request with the memory it counts for: it stays until the last node has been called, and
/// the nodes of a stream are called when its caller reads.
async fn counted(body: Bytes, limits: &CallLimits) -> Result<Bytes, Status> {
    if body.len() <= MAX_UNCOUNTED_BYTES {
        return Ok(body);
    }
    let memory = limits.memory(body.len()).await?;
    Ok(Chunk::new(body.into(), memory).into_bytes())
}

/// Returns a timeout shorter than the caller's, so that the merged answer still arrives in time.
fn before(timeout: Duration) -> Duration {
    timeout.saturating_sub((timeout / 10).min(Duration::from_secs(1)))
}

/// Returns the body of a merged message; the call's own memory is released with it.
fn one_message(message: Chunks, limits: CallLimits) -> Result<Body, Status> {
    let mut trailers = HeaderMap::new();
    Status::ok("").add_header(&mut trailers)?;
    let frames = message.into_frames().map(Frame::data);
    let frames = frames.chain([Frame::trailers(trailers)]);
    let body = StreamBody::new(stream::iter(frames.map(Ok::<_, Status>)));
    Ok(hold(Body::new(body), limits))
}

impl std::fmt::Debug for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fanout")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
