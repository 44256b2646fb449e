//! Authorities, certificates and in-memory handshakes the tests share.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use mainstay_identity::tls::{ServerTls, client_config};
use mainstay_identity::{Authority, CertifiedNode, ClientSpec, IssuedPem, NodeNames, Role};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};

pub(crate) const DAY: Duration = Duration::from_secs(24 * 60 * 60);
pub(crate) const YEAR: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// A fixed moment for tests that need no real clock.
pub(crate) fn moment() -> Timestamp {
    "2026-03-01T12:00:00Z".parse().unwrap()
}

pub(crate) fn names() -> NodeNames {
    NodeNames {
        common_name: "node-1".into(),
        dns: vec!["node-1".into(), "localhost".into()],
        ips: vec!["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
    }
}

pub(crate) fn authority() -> Authority {
    Authority::create("test", 10 * YEAR).unwrap()
}

pub(crate) fn alice(authority: &Authority) -> IssuedPem {
    let spec = ClientSpec {
        name: "alice".into(),
        roles: vec![Role::Reader],
        ttl: YEAR,
    };
    authority.issue_client(&spec).unwrap()
}

pub(crate) fn node(authority: &Authority) -> CertifiedNode {
    certified(authority.issue_node(&names(), YEAR).unwrap())
}

pub(crate) fn certified(issued: IssuedPem) -> CertifiedNode {
    CertifiedNode {
        cert: issued.cert,
        key: issued.key,
        ca: issued.ca,
        info: issued.info,
    }
}

/// Both ends of a handshake, with what each made of it.
pub(crate) struct Outcome {
    pub(crate) client: Result<(), rustls::Error>,
    pub(crate) server: Result<(), rustls::Error>,
    pub(crate) client_end: Connection,
    pub(crate) server_end: Connection,
}

/// A handshake of the given client with the server under `name`.
pub(crate) fn connect(
    tls: &ServerTls,
    ca: &str,
    client: Option<&IssuedPem>,
    name: &str,
) -> Outcome {
    let identity = client.map(|issued| (issued.cert.as_str(), &issued.key));
    let config = client_config(ca, identity).unwrap();
    connect_with(tls, config, name)
}

pub(crate) fn connect_with(
    tls: &ServerTls,
    config: Arc<rustls::ClientConfig>,
    name: &str,
) -> Outcome {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    let mut client_end = Connection::from(ClientConnection::new(config, name).unwrap());
    let mut server_end = Connection::from(ServerConnection::new(tls.config()).unwrap());
    let (mut client, mut server) = (Ok(()), Ok(()));
    // An end that failed still has its alert to send, but reads nothing more.
    while client_end.wants_write() || server_end.wants_write() {
        let to_server = sent(&mut client_end);
        if server.is_ok() {
            server = received(&mut server_end, &to_server);
        }
        let to_client = sent(&mut server_end);
        if client.is_ok() {
            client = received(&mut client_end, &to_client);
        }
    }
    Outcome {
        client,
        server,
        client_end,
        server_end,
    }
}

fn sent(end: &mut Connection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while end.wants_write() {
        end.write_tls(&mut bytes).unwrap();
    }
    bytes
}

pub(crate) fn received(end: &mut Connection, mut bytes: &[u8]) -> Result<(), rustls::Error> {
    while !bytes.is_empty() {
        end.read_tls(&mut bytes).unwrap();
        end.process_new_packets()?;
    }
    Ok(())
}
