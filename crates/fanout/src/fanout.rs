//! Routing of a call: to this node, to one other node, or to many.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt};
use http::{HeaderMap, HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use rustls::ClientConfig;
use tonic::Status;
use tonic::body::Body;

use crate::contract::Contract;
use crate::gather::{NodeCall, gather, no_answer};
use crate::interleave::interleave;
use crate::merge::NodeTag;
use crate::outgoing::{Asker, Outgoing, PROXY_FROM};
use crate::pool::Pool;
use crate::target::{Address, Host, Target};

/// The maximum number of nodes in a call.
const MAX_NODES: usize = 4096;

/// Settings that can change while the node runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// True if calls are forwarded at all.
    pub forwarding: bool,
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

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    Here,
    There(Address),
}

pub struct Fanout {
    settings: ArcSwap<Settings>,
    pool: Pool,
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
            let place = settings.place(&target, &mut own);
            if place != Place::Here && !settings.forwarding {
                return Err(Status::permission_denied(
                    "no request forwarding: this node's configuration allows it to answer only \
                     for itself",
                ));
            }
            Ok((text.to_owned(), place))
        };
        let mut nodes = headers.get_all("nodes").iter().peekable();
        if nodes.peek().is_some() {
            let places = nodes.map(&mut place).collect::<Result<Vec<_>, _>>()?;
            if places.len() > MAX_NODES {
                return Err(Status::invalid_argument(format!(
                    "the call names {} nodes; the most is {MAX_NODES}",
                    places.len()
                )));
            }
            return Ok(Forward::Many(places));
        }
        let mut node = headers.get_all("node").iter();
        match (node.next(), node.next()) {
            (None, _) => Ok(Forward::Here),
            (Some(value), None) => {
                let (name, place) = place(value)?;
                Ok(Forward::One(name, place))
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
        };
        let settings = self.settings.load_full();
        let (parts, body) = request.into_parts();
        let outgoing = Outgoing::new(&parts.uri, &parts.headers, asker, &settings.own_name)?;
        let request = outgoing.to(&address, body, timeout)?;
        let answer = self.pool.send(&address, request, settings.connect_timeout);
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
        let body = body.collect().await?.to_bytes();
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
                answer: self.ask(
                    place,
                    &outgoing,
                    body.clone(),
                    deadline,
                    settings.connect_timeout,
                ),
            })
            .collect();
        let body = if method.streams {
            interleave(contract, method, calls, answer_timeout)
        } else {
            one_message(gather(contract, method, calls, answer_timeout).await)?
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/grpc"),
        );
        Ok(response)
    }

    fn ask(
        &self,
        place: Place,
        outgoing: &Outgoing,
        body: Bytes,
        timeout: Option<Duration>,
        connect_timeout: Duration,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let body = Body::new(Full::new(body));
        match place {
            Place::Here => (self.local)(outgoing.here(body)).map(Ok).boxed(),
            Place::There(address) => {
                let request = outgoing.to(&address, body, timeout);
                let pool = self.pool.clone();
                async move { pool.send(&address, request?, connect_timeout).await }.boxed()
            }
        }
    }

    fn contract(&self) -> &Arc<Contract> {
        self.contract
            .get_or_init(|| Arc::new(Contract::from_descriptors(self.descriptors)))
    }
}

impl Settings {
    fn place(&self, target: &Target, own: &mut OwnAddresses) -> Place {
        let mut address = target.address(self.port);
        let is_own = |port: u16| port == self.own_address.port();
        let mut own_port = target.port.is_none_or(is_own);
        if let Host::Name(name) = &target.host {
            if own_port && name.eq_ignore_ascii_case(&self.own_name) {
                return Place::Here;
            }
            if let Some(peer) = self.peers.get(name) {
                address = Address {
                    host: peer.host.clone(),
                    port: target.port.unwrap_or(peer.port),
                };
                own_port = is_own(address.port);
            }
        }
        match &address.host {
            Host::Ip(ip) if own_port && (*ip == self.own_address.ip() || own.contains(ip)) => {
                Place::Here
            }
            _ => Place::There(address),
        }
    }
}

/// The addresses of this node, looked up at most once a call.
struct OwnAddresses {
    find: fn() -> Vec<IpAddr>,
    found: Option<Vec<IpAddr>>,
}

impl OwnAddresses {
    fn unknown(find: fn() -> Vec<IpAddr>) -> Self {
        Self { find, found: None }
    }

    fn contains(&mut self, ip: &IpAddr) -> bool {
        self.found.get_or_insert_with(self.find).contains(ip)
    }
}

/// Returns a timeout shorter than the caller's, so that the merged answer still arrives in time.
fn before(timeout: Duration) -> Duration {
    timeout.saturating_sub((timeout / 10).min(Duration::from_secs(1)))
}

fn one_message(message: Bytes) -> Result<Body, Status> {
    let mut trailers = HeaderMap::new();
    Status::ok("").add_header(&mut trailers)?;
    let trailers = async move { Some(Ok(trailers)) };
    Ok(Body::new(
        Full::new(message)
            .map_err(|never| match never {})
            .with_trailers(trailers),
    ))
}

impl std::fmt::Debug for Fanout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fanout")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
