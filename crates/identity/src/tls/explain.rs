//! Descriptions of a failed handshake: one line with problem and remedy. It only reads errors; it
//! must never make one look like success or hide the original.

use std::error::Error as StdError;
use std::io;
use std::net::IpAddr;

use jiff::Timestamp;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};
use rustls_pki_types::UnixTime;

use crate::pki::day;

/// The maximum length of a chain of causes.
const CHAIN_MAX: usize = 32;

/// The end of the connection that saw the error.
#[derive(Clone, Copy)]
enum Side {
    /// The one that connected to a node.
    Client,
    /// The node.
    Server,
}

/// Describes a TLS error anywhere in the chain of causes in one line, for the client of a node.
pub fn explain(error: &(dyn StdError + 'static)) -> Option<String> {
    explain_to(Side::Client, error)
}

/// Describes a TLS error for the node's own log, about a client that could not connect.
pub fn explain_to_node(error: &(dyn StdError + 'static)) -> Option<String> {
    explain_to(Side::Server, error)
}

fn explain_to(side: Side, error: &(dyn StdError + 'static)) -> Option<String> {
    let Some(found) = tls_error(error) else {
        return alert_in_text(error).map(|alert| alert_received(alert, side));
    };
    match found {
        Error::InvalidCertificate(problem) => Some(certificate(problem, side)),
        Error::AlertReceived(alert) => Some(alert_received(*alert, side)),
        Error::NoCertificatesPresented => Some(match side {
            Side::Client => {
                "the node sent no certificate; check that the address is a node's".into()
            }
            Side::Server => "the client sent no certificate; it needs one of this node's CA \
                             (mainstay pki client issues one)"
                .into(),
        }),
        Error::InvalidMessage(
            InvalidMessage::InvalidContentType
            | InvalidMessage::UnknownProtocolVersion
            | InvalidMessage::MessageTooLarge
            | InvalidMessage::InvalidEmptyPayload,
        ) => Some("the other side does not speak TLS; check the address and the port".into()),
        Error::InvalidMessage(_) | Error::DecryptError | Error::PeerMisbehaved(_) => Some(
            "the other side sent something that is not correct TLS; check that nothing between \
             the two machines changes the connection"
                .into(),
        ),
        Error::PeerIncompatible(_) => Some(
            "the other side and this one have no TLS version or cipher in common; both need at \
             least TLS 1.2"
                .into(),
        ),
        Error::NoApplicationProtocol => Some(no_http2()),
        _ => None,
    }
}

/// HTTP/2 libraries keep only the text of an error of the connection below them. An alert that
/// comes after the handshake, as every refusal of a client does in TLS 1.3, is found by its words.
fn alert_in_text(error: &(dyn StdError + 'static)) -> Option<AlertDescription> {
    let mut current = Some(error);
    for _ in 0..CHAIN_MAX {
        let error = current?;
        let text = error.to_string();
        let found = CLIENT_REFUSED
            .into_iter()
            .find(|alert| text.ends_with(&Error::AlertReceived(*alert).to_string()));
        if found.is_some() {
            return found;
        }
        current = error.source();
    }
    None
}

/// The alerts with which a node refuses a client certificate.
const CLIENT_REFUSED: [AlertDescription; 9] = [
    AlertDescription::UnknownCA,
    AlertDescription::CertificateExpired,
    AlertDescription::CertificateRequired,
    AlertDescription::CertificateRevoked,
    AlertDescription::BadCertificate,
    AlertDescription::UnsupportedCertificate,
    AlertDescription::CertificateUnknown,
    AlertDescription::DecryptError,
    AlertDescription::AccessDenied,
];

fn tls_error<'a>(error: &'a (dyn StdError + 'static)) -> Option<&'a Error> {
    let mut current: Option<&'a (dyn StdError + 'static)> = Some(error);
    for _ in 0..CHAIN_MAX {
        let error = current?;
        if let Some(found) = error.downcast_ref::<Error>() {
            return Some(found);
        }
        // The source of an io::Error is that of the error inside it, which would be skipped.
        current = match error
            .downcast_ref::<io::Error>()
            .and_then(io::Error::get_ref)
        {
            Some(inner) => Some(inner),
            None => error.source(),
        };
    }
    None
}

fn certificate(problem: &CertificateError, side: Side) -> String {
    let whose = match side {
        Side::Client => "the node's certificate",
        Side::Server => "the client's certificate",
    };
    let renewal = match side {
        Side::Client => "restart the node to renew it",
        Side::Server => "mainstay pki client issues a new one",
    };
    match problem {
        CertificateError::UnknownIssuer | CertificateError::BadSignature => match side {
            Side::Client => format!(
                "{whose} was not signed by the CA of your configuration; check that the address \
                 is the right node's, or get a new client configuration from it"
            ),
            Side::Server => format!(
                "{whose} was not signed by the CA of this node; issue one with mainstay pki client"
            ),
        },
        CertificateError::ExpiredContext { not_after, .. } => format!(
            "{whose} expired on {}; {renewal}, or check the clock of this machine",
            unix_day(*not_after)
        ),
        CertificateError::Expired => {
            format!("{whose} has expired; {renewal}, or check the clock of this machine")
        }
        CertificateError::NotValidYetContext { not_before, .. } => format!(
            "{whose} is not valid before {}; check the clocks of both machines",
            unix_day(*not_before)
        ),
        CertificateError::NotValidYet => {
            format!("{whose} is not valid yet; check the clocks of both machines")
        }
        CertificateError::NotValidForNameContext {
            expected,
            presented,
        } => format!(
            "{whose} is not for {:?}, it is for {}; connect by one of its names, or add this one \
             to the names of the node",
            expected.to_str(),
            names(presented)
        ),
        CertificateError::NotValidForName => {
            format!("{whose} is not for the name you connect by; use one of its own names")
        }
        CertificateError::Revoked => format!("{whose} has been revoked; {renewal}"),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("{whose} was issued for another purpose; {renewal}")
        }
        CertificateError::BadEncoding => format!("{whose} is damaged; {renewal}"),
        other => format!("{whose} was refused ({other}); {renewal}"),
    }
}

fn alert_received(alert: AlertDescription, side: Side) -> String {
    let (peer, whose, remedy) = match side {
        Side::Client => (
            "the node",
            "your certificate",
            "have a new one issued with mainstay pki client",
        ),
        Side::Server => (
            "the client",
            "this node's certificate",
            "give the client a new configuration",
        ),
    };
    match alert {
        AlertDescription::UnknownCA => {
            format!("{peer} does not know the CA of {whose}; {remedy}")
        }
        AlertDescription::CertificateExpired => format!(
            "{peer} says that {whose} has expired or is not valid yet; {remedy}, or check the \
             clocks of both machines"
        ),
        AlertDescription::CertificateRequired => format!(
            "{peer} requires a client certificate; use a client configuration that has one \
             (mainstay pki client issues it)"
        ),
        AlertDescription::CertificateRevoked => {
            format!("{peer} says that {whose} has been revoked; {remedy}")
        }
        AlertDescription::BadCertificate
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::DecryptError
        | AlertDescription::AccessDenied => format!("{peer} refuses {whose}; {remedy}"),
        AlertDescription::NoApplicationProtocol => no_http2(),
        AlertDescription::ProtocolVersion | AlertDescription::HandshakeFailure => format!(
            "{peer} has no TLS version or cipher in common with this side; both need at least \
             TLS 1.2"
        ),
        other => format!("{peer} ended the TLS handshake with the alert {other:?}; see its log"),
    }
}

fn no_http2() -> String {
    "the other side does not offer HTTP/2, which gRPC needs; check the address and the port".into()
}

fn unix_day(at: UnixTime) -> String {
    let seconds = i64::try_from(at.as_secs()).unwrap_or(i64::MAX);
    day(Timestamp::from_second(seconds).unwrap_or(Timestamp::MAX))
}

fn names(presented: &[String]) -> String {
    match presented {
        [] => "no name at all".to_owned(),
        names => names
            .iter()
            .map(|name| bare(name))
            .collect::<Vec<_>>()
            .join(", "),
    }
}

/// The names as rustls lists them are debug output, `DnsName("a")` or `IpAddress(0::1)`.
fn bare(name: &str) -> String {
    let inner = name.split_once('(').map_or(name, |(_, rest)| rest);
    let inner = inner.trim_end_matches(')').trim_matches('"');
    inner
        .parse::<IpAddr>()
        .map_or_else(|_| inner.to_owned(), |ip| ip.to_string())
}
