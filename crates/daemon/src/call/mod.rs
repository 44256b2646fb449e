//! The gate every call goes through: may the caller, is it for here, and what became of it.
//!
//! Nothing reaches a service except through [`Gate::handle`], and nothing leaves it unlogged.

mod body;
mod budget;
mod forwarded;
mod local;
mod record;
mod timeout;

use std::sync::Arc;

use http::{HeaderMap, Request, Response, StatusCode};
use mainstay_fanout::{Asker, Fanout, Forward};
use mainstay_identity::{Caller, Via, authorize};
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::Service;

use crate::engines::Engines;
use crate::engines::identity::Revoked;
use crate::listener::Ticket;
use crate::log::Lines;

pub use body::CallBody;
pub use local::LocalRoutes;
use record::{CallLog, Record};

/// The only service that is offered to callers nobody has identified.
const PODS_SERVICE: &str = "/v1alpha.PublicAPI/";

/// Who is at the other end of a connection.
#[derive(Debug)]
pub struct Connection {
    caller: Caller,
    from: String,
    /// Who and from where, as every log line of this connection says it.
    shown: String,
    ticket: Ticket,
}

impl Connection {
    pub fn new(caller: Caller, from: String, ticket: Ticket) -> Self {
        Self {
            // Quoted as text: a name in a certificate may hold anything.
            shown: format!("who={:?} from={from}", caller.to_string()),
            caller,
            from,
            ticket,
        }
    }

    /// The same for a call that this connection's node makes for `caller`.
    fn shown_for(&self, caller: &Caller) -> String {
        let who = format!("{caller} through node {}", self.caller.name);
        format!("who={who:?} from={}", self.from)
    }

    pub fn from(&self) -> &str {
        &self.from
    }

    pub fn ticket(&self) -> &Ticket {
        &self.ticket
    }
}

pub struct Gate {
    routes: Routes,
    fanout: Arc<Fanout>,
    requests: Lines,
    audit: Lines,
    revoked: Revoked,
    stop: CancellationToken,
    budget: budget::Budget,
}

impl Gate {
    pub fn new(routes: Routes, engines: &Engines) -> Self {
        Self {
            routes,
            fanout: Arc::clone(&engines.fanout.fanout),
            requests: engines.journal.daemon_log.lines(),
            audit: engines.journal.audit_log.lines(),
            revoked: Arc::clone(&engines.identity.revoked),
            stop: CancellationToken::new(),
            budget: budget::Budget::default(),
        }
    }

    /// Once cancelled, new calls are refused and open streams end with a status.
    pub fn stop_token(&self) -> CancellationToken {
        self.stop.clone()
    }

    pub async fn handle(
        &self,
        connection: &Arc<Connection>,
        request: Request<hyper::body::Incoming>,
    ) -> Response<CallBody> {
        let mut record = Record::begin(connection, request.uri().path());
        if !is_grpc(request.headers()) {
            return self.refuse_plain_http(record);
        }
        let caller = match forwarded::caller(&connection.caller, request.headers()) {
            Ok(caller) => caller,
            Err(status) => return self.finish(self.log(record, true), status.into_http()),
        };
        if caller.as_ref() != &connection.caller {
            record.made_for(connection.shown_for(&caller));
        }
        let admitted = match self.may(&caller, record.method(), request.headers()) {
            Ok(admitted) => admitted,
            Err(status) => return self.finish(self.log(record, true), status.into_http()),
        };
        if let Some((forward, _)) = &admitted.forward {
            record.sent_to(forward.shown());
        }
        // Made before the work begins: a caller who goes away in the middle of it drops this
        // future, and that has to leave its line as well.
        let log = self.log(record, admitted.audited);
        let response = self.call(request, admitted).await;
        self.finish(log, response)
    }

    /// What is to become of the call, if it may go on.
    fn may(&self, caller: &Caller, method: &str, headers: &HeaderMap) -> Result<Admitted, Status> {
        if self.stop.is_cancelled() {
            return Err(Status::unavailable(
                "the node is stopping; try again in a moment",
            ));
        }
        if let Via::Certificate {
            serial, not_after, ..
        } = &caller.via
        {
            if self
                .revoked
                .load()
                .iter()
                .any(|revoked| revoked.0 == *serial)
            {
                return Err(Status::permission_denied(format!(
                    "not authorized: the certificate of {} (serial {serial}) has been revoked",
                    caller.name
                )));
            }
            // The handshake has looked at this, but a connection, or a resumed session, may
            // outlive the certificate it began with.
            if *not_after < jiff::Timestamp::now() {
                return Err(Status::unauthenticated(format!(
                    "the certificate of {} expired on {}",
                    caller.name,
                    mainstay_identity::pki::day(*not_after)
                )));
            }
        }
        if caller.via == Via::LoopbackReadOnly && !method.starts_with(PODS_SERVICE) {
            return Err(Status::permission_denied(
                "not authorized: this listener only serves v1alpha.PublicAPI",
            ));
        }
        let rule = authorize(Some(caller), method)
            .map_err(|denied| Status::permission_denied(denied.to_string()))?;
        let forward = self.fanout.route(headers)?;
        // `authorize` lets nobody through without a role.
        let asker = match (&forward, caller.role) {
            (Forward::Here, _) => None,
            (_, Some(role)) if caller.via != Via::LoopbackReadOnly => Some(Asker {
                name: caller.name.clone(),
                role,
            }),
            _ => {
                return Err(Status::permission_denied(
                    "no request forwarding: this listener does not know its callers",
                ));
            }
        };
        Ok(Admitted {
            audited: rule.audited,
            forward: asker.map(|asker| (forward, asker)),
        })
    }

    async fn call(
        &self,
        request: Request<hyper::body::Incoming>,
        admitted: Admitted,
    ) -> Response<Body> {
        let bound = timeout::grpc_timeout(request.headers());
        let request = request.map(|body| Body::new(self.budget.meter(body)));
        if let Some((forward, asker)) = admitted.forward {
            let answered = match forward {
                Forward::Here => return answer(self.routes.clone(), request).await,
                Forward::One(_, place) => self.fanout.pass_on(place, request, &asker, bound).await,
                Forward::Many(places) => self.fanout.ask_all(places, request, &asker, bound).await,
            };
            return answered.unwrap_or_else(Status::into_http);
        }
        let answer = answer(self.routes.clone(), request);
        match bound {
            None => answer.await,
            Some(bound) => tokio::time::timeout(bound, answer)
                .await
                .unwrap_or_else(|_| {
                    Status::deadline_exceeded("the call's own timeout has passed").into_http()
                }),
        }
    }

    fn log(&self, record: Record, audited: bool) -> CallLog {
        let audit = audited.then(|| self.audit.clone());
        record.into_log(self.requests.clone(), audit)
    }

    fn finish(&self, log: CallLog, response: Response<Body>) -> Response<CallBody> {
        body::watch(response, log, self.stop.clone())
    }

    /// Someone speaks HTTP, but not gRPC: say so in their own language.
    fn refuse_plain_http(&self, record: Record) -> Response<CallBody> {
        let text = "this is a gRPC endpoint; use the mainstay command or any gRPC client\n";
        let mut response = Response::new(Body::new(FullText::from(text)));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        response.headers_mut().insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/plain"),
        );
        self.finish(self.log(record, false), response)
    }
}

/// A call that may go on.
struct Admitted {
    audited: bool,
    /// Where it goes and for whom, if it goes elsewhere.
    forward: Option<(Forward, Asker)>,
}

async fn answer(mut routes: Routes, request: Request<Body>) -> Response<Body> {
    match routes.call(request).await {
        Ok(response) if is_unknown_method(&response) => {
            Status::unimplemented("this node has no such method; reflection lists what it has")
                .into_http()
        }
        Ok(response) => response,
        Err(never) => match never {},
    }
}

fn is_grpc(headers: &HeaderMap) -> bool {
    headers
        .get(http::header::CONTENT_TYPE)
        .is_some_and(|kind| kind.as_bytes().starts_with(b"application/grpc"))
}

/// The router answers a path it does not know with a bare code; our own services always say more.
fn is_unknown_method(response: &Response<Body>) -> bool {
    response
        .headers()
        .get(Status::GRPC_STATUS)
        .is_some_and(|code| code == "12")
        && !response.headers().contains_key(Status::GRPC_MESSAGE)
}

/// A body of one piece of text, for answers outside gRPC.
type FullText = http_body_util::Full<bytes::Bytes>;

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").finish_non_exhaustive()
    }
}
