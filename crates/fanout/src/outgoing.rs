//! The request as it goes to another node: the caller's own words, and who they are from.

use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use mainstay_identity::Role;
use tonic::Status;
use tonic::body::Body;

use crate::target::Address;

/// The node that forwards; whoever gets it answers for itself.
pub const PROXY_FROM: &str = "proxyfrom";
/// The role of the caller it forwards for. Only a node may send it.
pub const FORWARDED_ROLE: &str = "mainstay-role";
/// The caller's name, for the logs of the node that answers.
pub const FORWARDED_FOR: &str = "mainstay-caller";

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Said anew for every node, or not meant for it.
const NOT_PASSED_ON: [&str; 7] = [
    "node",
    "nodes",
    PROXY_FROM,
    FORWARDED_ROLE,
    FORWARDED_FOR,
    GRPC_TIMEOUT,
    "host",
];

/// For whom a node forwards.
#[derive(Debug, Clone)]
pub struct Asker {
    pub name: String,
    pub role: Role,
}

/// One request, to be sent to any number of nodes.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    path: PathAndQuery,
    headers: HeaderMap,
    /// What only other nodes get to see.
    introduction: HeaderMap,
}

impl Outgoing {
    pub(crate) fn new(
        uri: &Uri,
        headers: &HeaderMap,
        asker: &Asker,
        own_name: &str,
    ) -> Result<Self, Status> {
        let path = uri
            .path_and_query()
            .cloned()
            .ok_or_else(|| Status::invalid_argument("the call names no method"))?;
        let mut passed = headers.clone();
        for name in NOT_PASSED_ON {
            passed.remove(name);
        }
        let mut introduction = HeaderMap::new();
        for (name, value) in [
            (PROXY_FROM, own_name),
            (FORWARDED_ROLE, asker.role.as_str()),
            (FORWARDED_FOR, asker.name.as_str()),
        ] {
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                Status::internal(format!("{name} {value:?} cannot be told to other nodes"))
            })?;
            introduction.insert(HeaderName::from_static(name), value);
        }
        Ok(Self {
            path,
            headers: passed,
            introduction,
        })
    }

    /// For another node, which may take no longer than `bound`.
    pub(crate) fn to(
        &self,
        address: &Address,
        body: Body,
        bound: Option<Duration>,
    ) -> Result<Request<Body>, Status> {
        let uri = Uri::builder()
            .scheme("https")
            .authority(address.to_string())
            .path_and_query(self.path.clone())
            .build()
            .map_err(|_| Status::invalid_argument(format!("{address} is not an address")))?;
        let mut request = self.request(uri, body);
        let headers = request.headers_mut();
        for (name, value) in &self.introduction {
            headers.insert(name, value.clone());
        }
        if let Some(bound) = bound {
            headers.insert(HeaderName::from_static(GRPC_TIMEOUT), grpc_timeout(bound));
        }
        Ok(request)
    }

    /// For this node itself.
    pub(crate) fn here(&self, body: Body) -> Request<Body> {
        self.request(Uri::from(self.path.clone()), body)
    }

    fn request(&self, uri: Uri, body: Body) -> Request<Body> {
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.version_mut() = Version::HTTP_2;
        *request.uri_mut() = uri;
        *request.headers_mut() = self.headers.clone();
        request
    }
}

/// At most eight digits.
fn grpc_timeout(bound: Duration) -> HeaderValue {
    let millis = bound.as_millis().max(1);
    let text = if millis < 100_000_000 {
        format!("{millis}m")
    } else {
        format!("{}S", bound.as_secs().min(99_999_999))
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("99999999S"))
}
