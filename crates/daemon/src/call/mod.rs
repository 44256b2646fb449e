//! The gate that every call passes: it authorizes the caller, routes the call to this node or to
//! others, and logs its outcome.
//!
//! No call reaches a service except through [`Gate::handle`], and none ends unlogged.

mod body;
mod budget;
mod forwarded;
mod local;
mod record;
mod timeout;
mod unread;

use std::sync::Arc;

use arc_swap::ArcSwap;
use http::{HeaderMap, Request, Response, StatusCode};
use mainstay_fanout::{Account, Asker, Fanout, Forward};
use mainstay_identity::{Caller, Via, authorize};
use tokio_util::sync::CancellationToken;
use tonic::body::Body;
use tonic::service::Routes;
use tonic::{Code, Status};
use tower::Service;

use crate::connection::Connection;
use crate::engines::Engines;
use crate::engines::identity::Revoked;
use crate::requester::Requester;

pub use body::CallBody;
pub use forwarded::AssertedRoles;
pub use local::LocalRoutes;
use record::{CallLog, CallLogs, Kind, Record};

/// The only service for callers that are not identified.
const PODS_SERVICE: &str = "/v1alpha.PublicAPI/";

/// Authorizes, routes and logs every call.
pub struct Gate {
    routes: Routes,
    fanout: Arc<Fanout>,
    logs: Arc<CallLogs>,
    revoked: Revoked,
    asserted: Arc<ArcSwap<AssertedRoles>>,
    stop: CancellationToken,
    budget: budget::Budget,
    unread: unread::Unread,
}

impl Gate {
    pub fn new(routes: Routes, engines: &Engines) -> Self {
        Self {
            routes,
            fanout: Arc::clone(&engines.fanout.fanout),
            logs: Arc::new(CallLogs {
                requests: engines.journal.daemon_log.lines(),
                audit: engines.journal.audit_log.lines(),
                denied: engines.journal.denied_log.lines(),
            }),
            revoked: Arc::clone(&engines.identity.revoked),
            asserted: Arc::clone(&engines.fanout.asserted),
            stop: CancellationToken::new(),
            budget: budget::Budget::new(&engines.listeners.connections),
            unread: unread::Unread::default(),
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
        let identified = forwarded::caller(
            &connection.caller,
            request.headers(),
            &self.asserted.load(),
            &self.revoked.load(),
        );
        let forwarded::Identified { caller, reduced } = match identified {
            Ok(identified) => identified,
            Err(status) => return self.refuse(record, status.into_http()),
        };
        let forwarded = caller.as_ref() != &connection.caller;
        if forwarded {
            record.forwarded_for(connection.log_fields_for(&caller));
        }
        let requester = Requester::new(connection, &caller, forwarded);
        let authorized = self.authorize(&caller, &requester, record.method(), request.headers());
        let admitted = match authorized {
            Ok(admitted) => admitted,
            Err(mut status) => {
                if let Some(role) = reduced.filter(|_| status.code() == Code::PermissionDenied) {
                    status = Status::permission_denied(format!(
                        "{}; {role} asserted by node {} is more than max_role in this node's \
                         configuration allows it",
                        status.message(),
                        connection.caller.name
                    ));
                }
                return self.refuse(record, status.into_http());
            }
        };
        if let Some((forward, _)) = &admitted.forward {
            record.forwarded_to(forward.shown());
        }
        // Created before the work begins: a caller that disconnects drops this future, and the
        // call has to be logged all the same.
        let log = self.log(record, admitted.kind);
        let call = self.call(request, admitted);
        let mut response = requester.clone().run(call).await;
        let encoded = self.unread.encode(log.method(), &requester, &mut response);
        let encoded = encoded.await.unwrap_or_else(|status| {
            response = status.into_http();
            None
        });
        let begun = body::Begun {
            requester: Some(requester),
            encoded,
        };
        body::watch(response, begun, log, self.stop.clone())
    }

    /// Decides whether the call is permitted and where it goes.
    fn authorize(
        &self,
        caller: &Caller,
        requester: &Requester,
        method: &str,
        headers: &HeaderMap,
    ) -> Result<Admitted, Status> {
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
            // The handshake has checked this, but a connection, or a resumed session, may outlive
            // its certificate.
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
        // `authorize` permits no caller without a role.
        let asker = match (&forward, caller.role) {
            (Forward::Here, _) => None,
            (_, Some(role)) if caller.via != Via::LoopbackReadOnly => Some(Asker {
                name: caller.name.clone(),
                role,
                serial: match &caller.via {
                    Via::Certificate { serial, .. } => Some(serial.clone()),
                    _ => None,
                },
                account: Account {
                    client: format!("{:?}", requester.client).into(),
                    privileged: requester.privileged,
                },
            }),
            _ => {
                return Err(Status::permission_denied(
                    "no request forwarding: this listener does not identify its callers",
                ));
            }
        };
        Ok(Admitted {
            kind: Kind::of(rule),
            forward: asker.map(|asker| (forward, asker)),
        })
    }

    async fn call(
        &self,
        request: Request<hyper::body::Incoming>,
        admitted: Admitted,
    ) -> Response<Body> {
        let bound = timeout::grpc_timeout(request.headers());
        let request = self.budget.meter(request).map(Body::new);
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
                    Status::deadline_exceeded("the deadline of the call has passed").into_http()
                }),
        }
    }

    fn log(&self, record: Record, kind: Kind) -> CallLog {
        record.into_log(Arc::clone(&self.logs), kind)
    }

    fn refuse(&self, record: Record, response: Response<Body>) -> Response<CallBody> {
        let log = self.log(record, Kind::Refused);
        body::watch(response, body::Begun::default(), log, self.stop.clone())
    }

    /// Answers HTTP that is not gRPC in plain text.
    fn refuse_plain_http(&self, record: Record) -> Response<CallBody> {
        let text = "this is a gRPC endpoint; use the mainstay command or any gRPC client\n";
        let mut response = Response::new(Body::new(FullText::from(text)));
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        response.headers_mut().insert(
            http::header::CONTENT_TYPE,
            http::HeaderValue::from_static("text/plain"),
        );
        self.refuse(record, response)
    }
}

/// A permitted call.
struct Admitted {
    kind: Kind,
    /// The nodes it is forwarded to, and for whom.
    forward: Option<(Forward, Asker)>,
}

async fn answer(mut routes: Routes, request: Request<Body>) -> Response<Body> {
    match routes.call(request).await {
        Ok(response) if is_unknown_method(&response) => {
            Status::unimplemented("this node has no such method; reflection lists its methods")
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

/// The router answers an unknown path with a bare code; services always add a message.
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
