//! Requests to other nodes: the caller's metadata, and on whose behalf they are sent.

use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use mainstay_identity::Role;
use tonic::Status;
use tonic::body::Body;

use crate::quota::Account;
use crate::target::Address;

/// The name of the forwarding node; a call with it is never forwarded again.
pub const PROXY_FROM: &str = "proxyfrom";
/// The role of the original caller. Only a node may send it.
pub const FORWARDED_ROLE: &str = "mainstay-role";
/// The name of the original caller, for the logs of the node that answers.
pub const FORWARDED_FOR: &str = "mainstay-caller";
/// The serial number of the original caller's certificate, for the revocation list of the node that
/// answers.
pub const FORWARDED_SERIAL: &str = "mainstay-serial";

const GRPC_TIMEOUT: &str = "grpc-timeout";
/// Headers that are set anew for every node or not meant for it.
const NOT_PASSED_ON: [&str; 8] = [
    "node",
    "nodes",
    PROXY_FROM,
    FORWARDED_ROLE,
    FORWARDED_FOR,
    FORWARDED_SERIAL,
    GRPC_TIMEOUT,
    "host",
];
/// Bounds the metadata that is passed on: every node of a call gets a copy.
const MAX_PASSED_ENTRIES: usize = 128;
const MAX_PASSED_BYTES: usize = 32 << 10;

/// The original caller of a forwarded call.
#[derive(Debug, Clone)]
pub struct Asker {
    pub name: String,
    pub role: Role,
    /// The serial number of its certificate, if it has one.
    pub serial: Option<String>,
    pub account: Account,
}

/// One request, to be sent to any number of nodes.
#[derive(Debug, Clone)]
pub(crate) struct Outgoing {
    path: PathAndQuery,
    headers: HeaderMap,
    /// Headers for other nodes only.
    forwarding: HeaderMap,
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
        let passed = passed_on(headers)?;
        let mut forwarding = HeaderMap::new();
        let serial = asker.serial.as_deref();
        let serial = serial.map(|serial| (FORWARDED_SERIAL, serial));
        for (name, value) in [
            (PROXY_FROM, own_name),
            (FORWARDED_ROLE, asker.role.as_str()),
            (FORWARDED_FOR, asker.name.as_str()),
        ]
        .into_iter()
        .chain(serial)
        {
            let value = HeaderValue::from_bytes(value.as_bytes()).map_err(|_| {
                Status::internal(format!("{name} {value:?} is not a valid header value"))
            })?;
            forwarding.insert(HeaderName::from_static(name), value);
        }
        Ok(Self {
            path,
            headers: passed,
            forwarding,
        })
    }

    /// Returns the request to another node, with a deadline after `timeout`.
    pub(crate) fn to(
        &self,
        address: &Address,
        body: Body,
        timeout: Option<Duration>,
    ) -> Result<Request<Body>, Status> {
        let uri = Uri::builder()
            .scheme("https")
            .authority(address.to_string())
            .path_and_query(self.path.clone())
            .build()
            .map_err(|_| Status::invalid_argument(format!("{address} is not an address")))?;
        let mut request = self.request(uri, body);
        let headers = request.headers_mut();
        for (name, value) in &self.forwarding {
            headers.insert(name, value.clone());
        }
        if let Some(timeout) = timeout {
            headers.insert(HeaderName::from_static(GRPC_TIMEOUT), grpc_timeout(timeout));
        }
        Ok(request)
    }

    /// Returns the request to this node itself.
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

/// Returns the caller's own metadata.
fn passed_on(headers: &HeaderMap) -> Result<HeaderMap, Status> {
    let mut passed = HeaderMap::new();
    let mut bytes = 0;
    for (name, value) in headers {
        if NOT_PASSED_ON.contains(&name.as_str()) {
            continue;
        }
        bytes += name.as_str().len() + value.len();
        if passed.len() >= MAX_PASSED_ENTRIES || bytes > MAX_PASSED_BYTES {
            return Err(Status::resource_exhausted(format!(
                "the metadata is too large to be forwarded; the most is {MAX_PASSED_ENTRIES} \
                 entries and {MAX_PASSED_BYTES} bytes besides the names of nodes"
            )));
        }
        passed.append(name, value.clone());
    }
    Ok(passed)
}

/// Formats a `grpc-timeout`, which has at most eight digits.
fn grpc_timeout(timeout: Duration) -> HeaderValue {
    let millis = timeout.as_millis().max(1);
    let text = if millis < 100_000_000 {
        format!("{millis}m")
    } else {
        format!("{}S", timeout.as_secs().min(99_999_999))
    };
    HeaderValue::try_from(text).unwrap_or_else(|_| HeaderValue::from_static("99999999S"))
}
