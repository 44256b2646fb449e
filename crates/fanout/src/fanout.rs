//! Where a call goes: here, to one other node, or to many.

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
use crate::gather::{Asked, gather, no_answer};
use crate::interleave::interleave;
use crate::merge::NodeTag;
use crate::outgoing::{Asker, Outgoing, PROXY_FROM};
use crate::pool::Pool;
use crate::target::{Address, Host, Target};

/// More nodes than anybody has; the metadata of a call has its own bound.
const MOST_NODES: usize = 4096;

/// What can change while the node runs.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Whether calls are forwarded at all.
    pub forwarding: bool,
    /// Where nodes listen when nothing else is said.
    pub port: u16,
    pub connect_timeout: Duration,
    /// How long a node may take to answer, if the caller sets no bound.
    pub answer_timeout: Duration,
    /// Nodes by name, for fleets without a name service.
    pub peers: BTreeMap<String, Address>,
    /// Serial numbers of certificates that are no longer believed, a node's as anybody's.
    pub revoked: BTreeSet<String>,
    /// This node's own name, and where it listens.
    pub own_name: String,
    pub own_address: SocketAddr,
}

/// Answers a call on this node itself.
pub type Local = Arc<dyn Fn(Request<Body>) -> BoxFuture<'static, Response<Body>> + Send + Sync>;

/// Where a call has to go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Forward {
    Here,
    /// To one node, whose answer is passed on as it is.
    One(String, Place),
    /// To each of these, and the answers are merged.
    Many(Vec<(String, Place)>),
}

impl Forward {
    /// The nodes as the caller named them, for the log; of very many the first.
    pub fn shown(&self) -> String {
        const MOST_BYTES: usize = 200;
        match self {
            Self::Here => String::new(),
            Self::One(name, _) => name.clone(),
            Self::Many(places) => {
                let mut shown = String::new();
                for (name, _) in places {
                    if shown.len() + name.len() > MOST_BYTES {
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
    /// Made when the first call needs it.
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

    /// For connections made from now on.
    pub fn set_tls(&self, tls: Arc<ClientConfig>) {
        self.pool.set_tls(tls);
    }

    /// Where the call with these headers has to go.
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
            if places.len() > MOST_NODES {
                return Err(Status::invalid_argument(format!(
                    "the call names {} nodes; the most is {MOST_NODES}",
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
                "`node` names one node; use `nodes` to ask several",
            )),
        }
    }

    /// The answer of one node, exactly as it gives it.
    pub async fn pass_on(
        &self,
        place: Place,
        request: Request<Body>,
        asker: &Asker,
        bound: Option<Duration>,
    ) -> Result<Response<Body>, Status> {
        let address = match place {
            Place::Here => return Ok((self.local)(request).await),
            Place::There(address) => address,
        };
        let settings = self.settings.load_full();
        let (parts, body) = request.into_parts();
        let outgoing = Outgoing::new(&parts.uri, &parts.headers, asker, &settings.own_name)?;
        let request = outgoing.to(&address, body, bound)?;
        let answer = self.pool.send(&address, request, settings.connect_timeout);
        match bound {
            None => answer.await,
            Some(bound) => tokio::time::timeout(bound, answer)
                .await
                .unwrap_or_else(|_| Err(no_answer(bound))),
        }
    }

    /// The answers of all these nodes as one.
    pub async fn ask_all(
        &self,
        places: Vec<(String, Place)>,
        request: Request<Body>,
        asker: &Asker,
        bound: Option<Duration>,
    ) -> Result<Response<Body>, Status> {
        let contract = self.contract();
        let Some(method) = contract.method(request.uri().path()) else {
            return Err(Status::unimplemented(
                "the answers of several nodes to this method cannot be merged; ask one node, with \
                 `node` in the metadata",
            ));
        };
        let settings = self.settings.load_full();
        let (parts, body) = request.into_parts();
        let outgoing = Outgoing::new(&parts.uri, &parts.headers, asker, &settings.own_name)?;
        let body = body.collect().await?.to_bytes();
        let patience = bound.map_or(settings.answer_timeout, before);
        // A stream has no end that could be waited for; its caller's bound is its bound.
        let told = if method.streams {
            bound.map(before)
        } else {
            Some(patience)
        };
        let asked = places
            .into_iter()
            .map(|(name, place)| Asked {
                tag: NodeTag::new(&name),
                answer: self.ask(
                    place,
                    &outgoing,
                    body.clone(),
                    told,
                    settings.connect_timeout,
                ),
            })
            .collect();
        let body = if method.streams {
            interleave(contract, method, asked, patience)
        } else {
            one_message(gather(contract, method, asked, patience).await)?
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
        bound: Option<Duration>,
        connect_timeout: Duration,
    ) -> BoxFuture<'static, Result<Response<Body>, Status>> {
        let body = Body::new(Full::new(body));
        match place {
            Place::Here => (self.local)(outgoing.here(body)).map(Ok).boxed(),
            Place::There(address) => {
                let request = outgoing.to(&address, body, bound);
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

/// Looked up once a call, and only if it names an address.
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

/// Earlier than the caller's own bound, so that what the others answered still reaches it.
fn before(bound: Duration) -> Duration {
    bound.saturating_sub((bound / 10).min(Duration::from_secs(1)))
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
