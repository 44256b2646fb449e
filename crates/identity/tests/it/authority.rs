use mainstay_identity::{
    Authority, CertificateInfo, ClientSpec, NodeNames, PkiError, PrivateKeyPem, Role,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use x509_parser::extensions::ParsedExtension;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::fixtures::{DAY, YEAR, alice, authority, moment, names};

fn with_parsed<T>(pem: &str, read: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    read(&X509Certificate::from_der(&der).unwrap().1)
}

fn key_identifiers(pem: &str) -> (Option<Vec<u8>>, Option<Vec<u8>>) {
    with_parsed(pem, |certificate| {
        let (mut subject, mut authority) = (None, None);
        for extension in certificate.extensions() {
            match extension.parsed_extension() {
                ParsedExtension::SubjectKeyIdentifier(id) => subject = Some(id.0.to_vec()),
                ParsedExtension::AuthorityKeyIdentifier(id) => {
                    authority = id.key_identifier.as_ref().map(|id| id.0.to_vec());
                }
                _ => {}
            }
        }
        (subject, authority)
    })
}

#[test]
fn the_authority_may_sign_certificates_and_no_further_authorities() {
    with_parsed(authority().certificate(), |certificate| {
        let constraints = certificate.basic_constraints().unwrap().unwrap();
        assert!(constraints.critical && constraints.value.ca);
        assert_eq!(constraints.value.path_len_constraint, Some(0));
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.key_cert_sign() && usage.crl_sign() && !usage.digital_signature());
    });
}

#[test]
fn a_node_certificate_serves_and_calls() {
    let issued = authority().issue_node(&names(), YEAR).unwrap();
    assert_eq!(issued.info.subject_cn, "node-1");
    assert_eq!(issued.info.organizations, ["os:node"]);
    assert_eq!(
        issued.info.sans,
        ["node-1", "localhost", "127.0.0.1", "::1"]
    );
    assert!(!issued.info.is_ca);
    with_parsed(&issued.cert, |certificate| {
        let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.server_auth && purposes.client_auth);
        let usage = certificate.key_usage().unwrap().unwrap().value;
        assert!(usage.digital_signature() && !usage.key_cert_sign());
    });
}

#[test]
fn a_client_certificate_only_calls_and_carries_its_highest_role() {
    let spec = ClientSpec {
        name: "ann".into(),
        roles: vec![Role::Operator, Role::Reader],
        ttl: DAY,
    };
    let issued = authority().issue_client(&spec).unwrap();
    assert_eq!(issued.info.organizations, ["os:operator"]);
    with_parsed(&issued.cert, |certificate| {
        let purposes = certificate.extended_key_usage().unwrap().unwrap().value;
        assert!(purposes.client_auth && !purposes.server_auth);
    });
}

#[test]
fn key_identifiers_link_a_certificate_to_its_authority() {
    let authority = authority();
    let (of_ca, _) = key_identifiers(authority.certificate());
    let (of_client, of_issuer) = key_identifiers(&alice(&authority).cert);
    assert!(of_ca.is_some() && of_client.is_some());
    assert_eq!(of_issuer, of_ca);
    assert_ne!(of_client, of_ca);
}

#[test]
fn every_key_is_p256() {
    const P256: &str = "1.2.840.10045.3.1.7";
    let authority = authority();
    for pem in [authority.certificate(), &alice(&authority).cert] {
        with_parsed(pem, |certificate| {
            let parameters = certificate
                .public_key()
                .algorithm
                .parameters
                .as_ref()
                .unwrap();
            assert_eq!(parameters.as_oid().unwrap().to_id_string(), P256);
        });
    }
}

#[test]
fn validity_begins_five_minutes_early_and_ends_as_asked() {
    let authority = Authority::create_at("test", 10 * YEAR, moment()).unwrap();
    let spec = ClientSpec {
        name: "ann".into(),
        roles: vec![],
        ttl: 30 * DAY,
    };
    let info = authority.issue_client_at(&spec, moment()).unwrap().info;
    assert_eq!(info.not_before.to_string(), "2026-03-01T11:55:00Z");
    assert_eq!(info.not_after.to_string(), "2026-03-31T12:00:00Z");
}

#[test]
fn no_certificate_outlives_its_authority() {
    let authority = Authority::create_at("test", 10 * DAY, moment()).unwrap();
    let issued = authority.issue_node_at(&names(), YEAR, moment()).unwrap();
    assert_eq!(issued.info.not_after, authority.info().not_after);
    let error = authority
        .issue_node_at(&names(), YEAR, moment() + YEAR)
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "the authority expired on 2026-03-11, so it cannot issue certificates; renew it first"
    );
}

#[test]
fn a_lifetime_beyond_the_calendar_ends_with_it() {
    let authority = Authority::create_at("test", std::time::Duration::MAX, moment()).unwrap();
    assert!(
        authority
            .info()
            .not_after
            .to_string()
            .starts_with("9999-12-30")
    );
}

#[test]
fn serials_are_128_random_bits() {
    let authority = authority();
    let mut serials: Vec<_> = (0..50).map(|_| alice(&authority).info.serial).collect();
    assert!(
        serials.iter().all(|serial| serial.len() == 32),
        "{serials:?}"
    );
    serials.sort();
    serials.dedup();
    assert_eq!(serials.len(), 50);
}

#[test]
fn names_are_cleaned_before_they_enter_a_certificate() {
    let authority = authority();
    let named = |name: &str| {
        let spec = ClientSpec {
            name: name.into(),
            roles: vec![],
            ttl: DAY,
        };
        authority
            .issue_client(&spec)
            .map(|issued| issued.info.subject_cn)
    };
    assert_eq!(named("  ann \n\t of\u{7} lab ").unwrap(), "ann of lab");
    assert_eq!(named(&"é".repeat(100)).unwrap(), "é".repeat(64));
    for nothing in ["", " \n ", "\u{0}\u{1}"] {
        assert!(
            matches!(named(nothing), Err(PkiError::NoName { .. })),
            "{nothing:?}"
        );
    }
}

#[test]
fn host_names_no_certificate_can_hold_are_left_out() {
    let odd = NodeNames {
        common_name: "node-1".into(),
        dns: [
            "Node-1.Lab.",
            "bad name",
            "",
            "10.0.0.1",
            "node-1.lab",
            "ünicode",
        ]
        .map(String::from)
        .to_vec(),
        ips: vec![
            "10.0.0.1".parse().unwrap(),
            "::ffff:10.0.0.2".parse().unwrap(),
        ],
    };
    let issued = authority().issue_node(&odd, YEAR).unwrap();
    assert_eq!(issued.info.sans, ["node-1.lab", "10.0.0.1", "10.0.0.2"]);
}

#[test]
fn two_authorities_of_one_name_can_be_told_apart() {
    assert_ne!(authority().info().subject_cn, authority().info().subject_cn);
    let long = Authority::create(&"x".repeat(100), YEAR).unwrap();
    let other = Authority::create(&"x".repeat(100), YEAR).unwrap();
    assert_ne!(long.info().subject_cn, other.info().subject_cn);
}

#[test]
fn an_authority_is_the_same_after_reading_it_back() {
    let made = authority();
    let read = Authority::from_pem(made.certificate(), &made.key()).unwrap();
    assert_eq!(read.info(), made.info());
    assert_eq!(alice(&read).info.issuer_cn, made.info().subject_cn);
    let error = Authority::from_pem(made.certificate(), &authority().key()).unwrap_err();
    assert!(matches!(error, PkiError::PairMismatch), "{error}");
}

#[test]
fn no_key_shows_in_debug_output() {
    let authority = authority();
    let issued = alice(&authority);
    let shown = format!("{authority:?} {issued:?} {:?}", PrivateKeyPem::new("hush"));
    for key in [
        issued.key.expose(),
        authority.key().expose(),
        "hush",
        "PRIVATE KEY",
    ] {
        let body = key.lines().nth(1).unwrap_or(key);
        assert!(!shown.contains(body), "{shown}");
    }
}

#[test]
fn garbage_is_not_read_as_a_certificate() {
    for text in [
        "",
        "garbage",
        "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    ] {
        assert!(CertificateInfo::from_pem(text).is_err(), "{text}");
    }
}
