use std::io;

use jiff::Timestamp;
use mainstay_identity::tls::{ServerTls, explain, explain_to_node};
use mainstay_identity::{Authority, ClientSpec, IssuedPem};
use rustls::{ClientConnection, Connection, ServerConnection};

use crate::fixtures::{DAY, YEAR, alice, authority, certified, connect, names, node, received};

fn said(outcome: Result<(), rustls::Error>) -> String {
    explain(&outcome.unwrap_err()).unwrap()
}

fn said_to_node(outcome: Result<(), rustls::Error>) -> String {
    explain_to_node(&outcome.unwrap_err()).unwrap()
}

/// An authority that has existed for a while, and a moment in its past.
fn old_authority() -> (Authority, Timestamp) {
    let past = Timestamp::now() - 90 * DAY;
    (Authority::create_at("old", YEAR, past).unwrap(), past)
}

fn client_at(authority: &Authority, at: Timestamp) -> IssuedPem {
    let spec = ClientSpec {
        name: "alice".into(),
        roles: vec![],
        ttl: DAY,
    };
    authority.issue_client_at(&spec, at).unwrap()
}

fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

#[test]
fn a_node_of_another_authority() {
    let (ours, theirs) = (authority(), authority());
    let tls = ServerTls::new(&node(&theirs)).unwrap();
    let outcome = connect(&tls, ours.certificate(), Some(&alice(&ours)), "localhost");
    assert_eq!(
        said(outcome.client),
        "the node's certificate was not signed by the CA of your configuration; check that the \
         address is the right node's, or get a new client configuration from it"
    );
    assert_eq!(
        said_to_node(outcome.server),
        "the client does not know the CA of this node's certificate; give the client a new \
         configuration"
    );
}

#[test]
fn a_client_of_another_authority() {
    let (ours, theirs) = (authority(), authority());
    let tls = ServerTls::new(&node(&ours)).unwrap();
    let outcome = connect(&tls, ours.certificate(), Some(&alice(&theirs)), "localhost");
    assert_eq!(
        said(outcome.client),
        "the node does not know the CA of your certificate; have a new one issued with mainstay \
         pki client"
    );
    assert_eq!(
        said_to_node(outcome.server),
        "the client's certificate was not signed by the CA of this node; issue one with mainstay \
         pki client"
    );
}

#[test]
fn a_client_without_a_certificate() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let outcome = connect(&tls, authority.certificate(), None, "localhost");
    assert_eq!(
        said(outcome.client),
        "the node requires a client certificate; use a client configuration that has one \
         (mainstay pki client issues it)"
    );
    assert_eq!(
        said_to_node(outcome.server),
        "the client sent no certificate; it needs one of this node's CA (mainstay pki client \
         issues one)"
    );
}

#[test]
fn an_expired_client() {
    let (authority, past) = old_authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let expired = client_at(&authority, past);
    let outcome = connect(&tls, authority.certificate(), Some(&expired), "localhost");
    assert_eq!(
        said(outcome.client),
        "the node says that your certificate has expired or is not valid yet; have a new one \
         issued with mainstay pki client, or check the clocks of both machines"
    );
    assert_eq!(
        said_to_node(outcome.server),
        format!(
            "the client's certificate expired on {}; mainstay pki client issues a new one, or \
             check the clock of this machine",
            day(expired.info.not_after)
        )
    );
}

#[test]
fn an_expired_node() {
    let (authority, past) = old_authority();
    let expired = certified(authority.issue_node_at(&names(), DAY, past).unwrap());
    let tls = ServerTls::new(&expired).unwrap();
    let outcome = connect(
        &tls,
        authority.certificate(),
        Some(&alice(&authority)),
        "localhost",
    );
    assert_eq!(
        said(outcome.client),
        format!(
            "the node's certificate expired on {}; restart the node to renew it, or check the \
             clock of this machine",
            day(expired.info.not_after)
        )
    );
}

#[test]
fn a_node_certificate_that_is_not_valid_yet() {
    let authority = authority();
    let future = Timestamp::now() + 30 * DAY;
    let early = certified(authority.issue_node_at(&names(), DAY, future).unwrap());
    let tls = ServerTls::new(&early).unwrap();
    let outcome = connect(
        &tls,
        authority.certificate(),
        Some(&alice(&authority)),
        "localhost",
    );
    assert_eq!(
        said(outcome.client),
        format!(
            "the node's certificate is not valid before {}; check the clocks of both machines",
            day(early.info.not_before)
        )
    );
}

#[test]
fn a_name_the_certificate_does_not_have() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let said = |name| {
        let client = alice(&authority);
        said(connect(&tls, authority.certificate(), Some(&client), name).client)
    };
    let ending = "it is for node-1, localhost, 127.0.0.1, ::1; connect by one of its names, or \
                  add this one to the names of the node";
    assert_eq!(
        said("node-9.lab"),
        format!("the node's certificate is not for \"node-9.lab\", {ending}")
    );
    assert_eq!(
        said("10.9.8.7"),
        format!("the node's certificate is not for \"10.9.8.7\", {ending}")
    );
}

#[test]
fn a_client_certificate_used_by_a_node() {
    let authority = authority();
    let client = alice(&authority);
    let tls = ServerTls::new(&certified(client.clone())).unwrap();
    let outcome = connect(&tls, authority.certificate(), Some(&client), "localhost");
    assert_eq!(
        said(outcome.client),
        "the node's certificate was issued for another purpose; restart the node to renew it"
    );
}

#[test]
fn a_peer_without_tls() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let config = mainstay_identity::tls::client_config(authority.certificate(), None).unwrap();
    let text = "the other side does not speak TLS; check the address and the port";

    for answer in [
        "HTTP/1.1 400 Bad Request\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
    ] {
        let name = "localhost".try_into().unwrap();
        let client = ClientConnection::new(config.clone(), name).unwrap();
        let error = received(&mut Connection::from(client), answer.as_bytes());
        assert_eq!(said(error), text, "{answer}");
    }
    let settings_frame = [0, 0, 0, 4, 0, 0, 0, 0, 0];
    let client = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    assert_eq!(
        said(received(&mut Connection::from(client), &settings_frame)),
        text
    );

    let server = ServerConnection::new(tls.config()).unwrap();
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
    assert_eq!(
        said_to_node(received(&mut Connection::from(server), preface)),
        text
    );
}

#[derive(Debug, thiserror::Error)]
#[error("cannot connect")]
struct Wrapped(#[source] io::Error);

#[test]
fn the_tls_error_is_found_however_deep_it_is_wrapped() {
    let tls = rustls::Error::AlertReceived(rustls::AlertDescription::UnknownCA);
    let inner = io::Error::new(io::ErrorKind::InvalidData, tls);
    let wrapped = Wrapped(io::Error::other(Wrapped(inner)));
    assert!(
        explain(&wrapped)
            .unwrap()
            .starts_with("the node does not know the CA")
    );
}

#[test]
fn errors_without_a_tls_cause_are_not_described() {
    assert_eq!(
        explain(&Wrapped(io::ErrorKind::ConnectionRefused.into())),
        None
    );
    assert_eq!(explain(&rustls::Error::HandshakeNotComplete), None);
}
