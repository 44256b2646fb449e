use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_api::common::Metadata;
use mainstay_identity::client_config::ClientConfigError;
use mainstay_identity::tls::{TlsError, explain};
use tonic::{Code, Status};

use crate::Endpoint;

/// A call or a connection that failed.
///
/// `Display` never repeats the source; [`chain`](crate::chain) joins an error with its causes.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The text does not name an endpoint.
    #[error("{0:?} is not an endpoint; write HOST, HOST:PORT or unix:PATH")]
    InvalidEndpoint(String),
    /// The text cannot be sent as the name of a node.
    #[error("{0:?} is not a node; write HOST, ADDRESS or HOST:PORT")]
    InvalidNode(String),
    /// The host name cannot be in a certificate.
    #[error("{0:?} is not a host name or address that a certificate can carry")]
    InvalidHost(String),
    /// There is neither a client configuration nor a local node.
    #[error("{}", no_client_config(.expected.as_ref()))]
    NoClientConfig {
        /// The user's own file, which does not exist.
        expected: Option<PathBuf>,
    },
    /// The client configuration cannot be used.
    #[error(transparent)]
    ClientConfig(ClientConfigError),
    /// The context names no endpoint.
    #[error("context {0:?} has no endpoints")]
    NoEndpoints(String),
    /// The context has no CA certificate.
    #[error("context {0:?} has no CA certificate to verify the node with")]
    NoCa(String),
    /// The client certificate of the context has expired.
    #[error("{0}")]
    CertificateExpired(String),
    /// The credentials of the context cannot be used for TLS.
    #[error(transparent)]
    Credentials(TlsError),
    /// No connection to the endpoint.
    #[error("cannot reach node {endpoint}")]
    Connect {
        /// The endpoint tried.
        endpoint: Endpoint,
        /// The reason.
        source: std::io::Error,
    },
    /// No connection to the endpoint in time.
    #[error("cannot reach node {endpoint}: no connection within {}", humantime::format_duration(*.timeout))]
    ConnectTimeout {
        /// The endpoint tried.
        endpoint: Endpoint,
        /// The time waited.
        timeout: Duration,
    },
    /// The endpoint closed the connection during the TLS handshake.
    #[error("node {endpoint} closed the connection during the TLS handshake")]
    Handshake {
        /// The endpoint tried.
        endpoint: Endpoint,
        /// The reason.
        source: std::io::Error,
    },
    /// The endpoint closed the connection during the HTTP/2 handshake.
    #[error("cannot reach node {endpoint}")]
    Http2 {
        /// The endpoint tried.
        endpoint: Endpoint,
        /// The reason.
        source: tonic::transport::Error,
    },
    /// TLS failed: unknown CA, expired certificate, wrong name, certificate refused.
    #[error("node {endpoint}: {reason}")]
    Tls {
        /// The endpoint tried.
        endpoint: Endpoint,
        /// The reason and the remedy.
        reason: String,
    },
    /// The node refused the connection by a TLS alert after the handshake.
    #[error("{0}")]
    TlsAlert(String),
    /// No answer in time.
    #[error("no answer within {}", humantime::format_duration(*.0))]
    Timeout(Duration),
    /// The connection broke before the node answered.
    #[error("connection to the node lost")]
    Lost(#[source] TransportError),
    /// The node answered with an error.
    #[error("{message}")]
    Status {
        /// The gRPC status code.
        code: Code,
        /// The node's message.
        message: String,
    },
    /// The node answered without a message.
    #[error("the node answered without a message")]
    EmptyReply,
}

/// Class of an [`Error`], by which programs choose an exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The call failed for a reason without a class of its own.
    Failed,
    /// An argument or the client configuration is not valid.
    Usage,
    /// The node cannot be reached.
    Unreachable,
    /// TLS or a certificate.
    Tls,
    /// The caller's role has no permission for the call.
    PermissionDenied,
    /// The object does not exist.
    NotFound,
    /// The node does not serve the method.
    Unimplemented,
    /// No answer in time.
    Timeout,
}

impl Error {
    /// Returns the class of the error.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidEndpoint(_)
            | Self::InvalidNode(_)
            | Self::InvalidHost(_)
            | Self::NoClientConfig { .. }
            | Self::ClientConfig(_)
            | Self::NoEndpoints(_) => ErrorKind::Usage,
            Self::Connect { .. }
            | Self::ConnectTimeout { .. }
            | Self::Handshake { .. }
            | Self::Http2 { .. }
            | Self::Lost(_) => ErrorKind::Unreachable,
            Self::NoCa(_)
            | Self::CertificateExpired(_)
            | Self::Credentials(_)
            | Self::Tls { .. }
            | Self::TlsAlert(_) => ErrorKind::Tls,
            Self::Timeout(_) => ErrorKind::Timeout,
            Self::EmptyReply => ErrorKind::Failed,
            Self::Status { code, .. } => kind_of(*code),
        }
    }

    /// Returns the error that a forwarding node reports for another node.
    pub fn of_node(metadata: &Metadata) -> Self {
        let status = metadata.status.as_ref();
        // The text of the error repeats the code for clients that know no status.
        let message = match status {
            Some(status) if !status.message.is_empty() => &status.message,
            _ => without_code(&metadata.error),
        };
        Self::Status {
            code: status.map_or(Code::Unknown, |status| Code::from_i32(status.code)),
            message: message.to_owned(),
        }
    }

    /// Returns `true` if the connection is lost, and with it every other call on it.
    pub fn is_lost_connection(&self) -> bool {
        matches!(self, Self::Lost(_) | Self::TlsAlert(_))
    }
}

/// Returns the text of an error without `rpc error: code = <Code> desc = ` before it.
fn without_code(error: &str) -> &str {
    error
        .strip_prefix("rpc error: code = ")
        .and_then(|rest| rest.split_once(" desc = "))
        .map_or(error, |(_, text)| text)
}

fn kind_of(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument | Code::OutOfRange => ErrorKind::Usage,
        Code::Unavailable => ErrorKind::Unreachable,
        Code::PermissionDenied | Code::Unauthenticated => ErrorKind::PermissionDenied,
        Code::NotFound => ErrorKind::NotFound,
        Code::Unimplemented => ErrorKind::Unimplemented,
        Code::DeadlineExceeded => ErrorKind::Timeout,
        _ => ErrorKind::Failed,
    }
}

impl From<Status> for Error {
    fn from(status: Status) -> Self {
        if let Some(reason) = explain(&status) {
            return Self::TlsAlert(reason);
        }
        // A status that a node sent has no source; one made here because nothing came has.
        if std::error::Error::source(&status).is_some() {
            return Self::Lost(TransportError(Box::new(status)));
        }
        let message = match status.message() {
            "" => format!("the node answered {:?}", status.code()),
            text => text.to_owned(),
        };
        Self::Status {
            code: status.code(),
            message,
        }
    }
}

/// The transport error in a status that the gRPC library made, without the status around it.
#[derive(Debug)]
pub struct TransportError(Box<Status>);

impl fmt::Display for TransportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match std::error::Error::source(&*self.0) {
            Some(source) => fmt::Display::fmt(source, f),
            None => f.write_str(self.0.message()),
        }
    }
}

impl std::error::Error for TransportError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&*self.0)?.source()
    }
}

fn no_client_config(expected: Option<&PathBuf>) -> String {
    let expected = expected.map_or_else(String::new, |path| format!(" at {}", path.display()));
    format!(
        "no client configuration{expected}, and no node runs here under this user; get a \
         client.yaml from the node's administrator and run mainstay config merge client.yaml"
    )
}

#[cfg(test)]
mod tests {
    use mainstay_error_chain::chain;

    use super::*;

    #[test]
    fn a_lost_connection_names_its_cause_once() {
        let cause = std::io::Error::other("broken pipe");
        let lost = Error::from(Status::from_error(Box::new(cause)));
        assert_eq!(lost.kind(), ErrorKind::Unreachable);
        assert!(lost.is_lost_connection());
        assert_eq!(chain(&lost), "connection to the node lost: broken pipe");
    }

    #[test]
    fn the_error_of_another_node_is_shown_without_its_code() {
        let text = "rpc error: code = NotFound desc = log \"x\" was not registered";
        let mut metadata = Metadata {
            error: text.to_owned(),
            ..Metadata::default()
        };
        let plain = "log \"x\" was not registered";
        assert_eq!(chain(&Error::of_node(&metadata)), plain);
        metadata.status = Some(mainstay_api::google::rpc::Status {
            code: 5,
            message: plain.to_owned(),
            ..Default::default()
        });
        let error = Error::of_node(&metadata);
        assert_eq!(error.kind(), ErrorKind::NotFound);
        assert_eq!(chain(&error), plain);
        metadata.error = "rpc error: no code".to_owned();
        metadata.status = None;
        assert_eq!(chain(&Error::of_node(&metadata)), "rpc error: no code");
    }

    #[test]
    fn links_to_the_manual_of_a_library_are_left_out() {
        let eof = "peer closed connection: https://docs.rs/rustls/latest/x.html#unexpected-eof";
        let lost = Error::from(Status::from_error(Box::new(std::io::Error::other(eof))));
        assert_eq!(
            chain(&lost),
            "connection to the node lost: peer closed connection"
        );
    }

    #[test]
    fn a_status_of_the_node_keeps_its_message() {
        let refused = Error::from(Status::permission_denied("role os:reader"));
        assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
        assert_eq!(chain(&refused), "role os:reader");
        let silent = Error::from(Status::internal(""));
        assert_eq!(chain(&silent), "the node answered Internal");
    }
}
