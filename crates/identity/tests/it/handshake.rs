use std::sync::Arc;

use mainstay_identity::tls::{ServerTls, TlsError, client_config};
use mainstay_identity::{Caller, CertifiedNode, PrivateKeyPem, Role};
use rustls::{AlertDescription, CertificateError, Error, ProtocolVersion, RootCertStore};

use crate::fixtures::{YEAR, alice, authority, connect, connect_with, names, node};

#[test]
fn a_client_of_the_authority_is_accepted_and_identified_by_its_certificate() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    for name in ["localhost", "node-1", "127.0.0.1", "::1"] {
        let outcome = connect(
            &tls,
            authority.certificate(),
            Some(&alice(&authority)),
            name,
        );
        assert_eq!((outcome.client, outcome.server), (Ok(()), Ok(())), "{name}");
        assert!(!outcome.client_end.is_handshaking() && !outcome.server_end.is_handshaking());
        assert_eq!(outcome.server_end.alpn_protocol(), Some(&b"h2"[..]));
        assert_eq!(
            outcome.server_end.protocol_version(),
            Some(ProtocolVersion::TLSv1_3)
        );
        let shown = outcome.server_end.peer_certificates().unwrap();
        let caller = Caller::from_certificate(&shown[0]).unwrap();
        assert_eq!(
            (caller.name.as_str(), caller.role),
            ("alice", Some(Role::Reader))
        );
    }
}

#[test]
fn a_node_certificate_serves_as_a_clients_too() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let caller = authority.issue_node(&names(), YEAR).unwrap();
    let outcome = connect(&tls, authority.certificate(), Some(&caller), "localhost");
    assert_eq!((outcome.client, outcome.server), (Ok(()), Ok(())));
}

#[test]
fn a_client_without_a_certificate_is_refused() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let outcome = connect(&tls, authority.certificate(), None, "localhost");
    assert_eq!(outcome.server, Err(Error::NoCertificatesPresented));
    assert_eq!(
        outcome.client,
        Err(Error::AlertReceived(AlertDescription::CertificateRequired))
    );
}

#[test]
fn a_client_of_another_authority_is_refused() {
    let (ours, theirs) = (authority(), authority());
    let tls = ServerTls::new(&node(&ours)).unwrap();
    let outcome = connect(&tls, ours.certificate(), Some(&alice(&theirs)), "localhost");
    assert_eq!(
        outcome.server,
        Err(Error::InvalidCertificate(CertificateError::UnknownIssuer))
    );
    assert_eq!(
        outcome.client,
        Err(Error::AlertReceived(AlertDescription::UnknownCA))
    );
}

#[test]
fn a_client_certificate_is_refused_as_a_node_certificate() {
    let authority = authority();
    let mut posing = node(&authority);
    let client = alice(&authority);
    (posing.cert, posing.key) = (client.cert, client.key);
    let tls = ServerTls::new(&posing).unwrap();
    let outcome = connect(
        &tls,
        authority.certificate(),
        Some(&alice(&authority)),
        "localhost",
    );
    assert!(
        matches!(outcome.client, Err(Error::InvalidCertificate(_))),
        "{:?}",
        outcome.client
    );
}

#[test]
fn the_certificate_is_replaced_without_a_new_configuration() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let config = tls.config();
    let next = node(&authority);
    tls.replace(&next).unwrap();
    assert!(Arc::ptr_eq(&config, &tls.config()));
    let outcome = connect(
        &tls,
        authority.certificate(),
        Some(&alice(&authority)),
        "localhost",
    );
    let shown = outcome.client_end.peer_certificates().unwrap()[0].to_vec();
    let shown = mainstay_identity::CertificateInfo::from_der(&shown).unwrap();
    assert_eq!(shown.serial, next.info.serial);
}

#[test]
fn an_unusable_replacement_leaves_the_old_certificate() {
    let authority = authority();
    let first = node(&authority);
    let tls = ServerTls::new(&first).unwrap();
    let broken = CertifiedNode {
        key: node(&authority).key,
        ..first
    };
    assert!(matches!(tls.replace(&broken), Err(TlsError::KeyMismatch)));
    let foreign = node(&crate::fixtures::authority());
    assert!(matches!(
        tls.replace(&foreign),
        Err(TlsError::AuthorityChanged)
    ));
    let outcome = connect(
        &tls,
        authority.certificate(),
        Some(&alice(&authority)),
        "localhost",
    );
    assert_eq!((outcome.client, outcome.server), (Ok(()), Ok(())));
}

#[test]
fn tls_1_2_clients_need_a_certificate() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let client = alice(&authority);
    let config = |with_certificate: bool| {
        use rustls::pki_types::pem::PemObject as _;
        use rustls::pki_types::{CertificateDer, PrivateKeyDer};
        let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(der(authority.certificate())).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS12])
            .unwrap()
            .with_root_certificates(roots);
        let mut config = if with_certificate {
            let key = PrivateKeyDer::from_pem_slice(client.key.expose().as_bytes()).unwrap();
            builder
                .with_client_auth_cert(vec![der(&client.cert)], key)
                .unwrap()
        } else {
            builder.with_no_client_auth()
        };
        config.alpn_protocols = vec![b"h2".to_vec()];
        Arc::new(config)
    };
    let outcome = connect_with(&tls, config(true), "localhost");
    assert_eq!((outcome.client, outcome.server), (Ok(()), Ok(())));
    assert_eq!(
        outcome.server_end.protocol_version(),
        Some(ProtocolVersion::TLSv1_2)
    );
    assert!(
        connect_with(&tls, config(false), "localhost")
            .server
            .is_err()
    );
}

#[test]
fn a_client_without_http2_is_refused() {
    let authority = authority();
    let tls = ServerTls::new(&node(&authority)).unwrap();
    let client = alice(&authority);
    let config = client_config(authority.certificate(), Some((&client.cert, &client.key))).unwrap();
    let mut config = rustls::ClientConfig::clone(&config);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let outcome = connect_with(&tls, Arc::new(config), "localhost");
    assert_eq!(outcome.server, Err(Error::NoApplicationProtocol));
}

#[test]
fn unusable_credentials_are_reported_by_kind() {
    let authority = authority();
    let client = alice(&authority);
    let ca = authority.certificate();
    let no_key = PrivateKeyPem::new("nothing");
    assert!(matches!(
        client_config("", None),
        Err(TlsError::BadAuthority)
    ));
    assert!(matches!(
        client_config("garbage", None),
        Err(TlsError::BadAuthority)
    ));
    assert!(matches!(
        client_config(ca, Some(("garbage", &client.key))),
        Err(TlsError::BadCertificate)
    ));
    assert!(matches!(
        client_config(ca, Some((&client.cert, &no_key))),
        Err(TlsError::BadKey)
    ));
    let other = alice(&authority);
    assert!(matches!(
        client_config(ca, Some((&client.cert, &other.key))),
        Err(TlsError::KeyMismatch)
    ));
}
