//! Every file of the directory lost or corrupt in every way, and a crash at every point.

use std::fs;
use std::path::Path;

use jiff::Timestamp;
use mainstay_identity::tls::ServerTls;
use mainstay_identity::{Authority, CertifiedNode, Ensured, IssuedPem, PkiDir, PkiError};

use crate::fixtures::{YEAR, alice, authority, connect, names};
use crate::pki_dir::read;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Damage {
    Missing,
    Empty,
    Truncated,
    Garbage,
}

const ALL: [Damage; 4] = [
    Damage::Missing,
    Damage::Empty,
    Damage::Truncated,
    Damage::Garbage,
];
const BROKEN: [Damage; 3] = [Damage::Empty, Damage::Truncated, Damage::Garbage];

/// A directory in good order, with a client that was issued a certificate from it.
struct Node {
    state: tempfile::TempDir,
    pki: PkiDir,
    before: CertifiedNode,
    client: IssuedPem,
}

impl Node {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let pki = PkiDir::new(state.path());
        let before = pki.ensure(&names(), Timestamp::now()).unwrap().node;
        let client = alice(&pki.authority().unwrap());
        Self {
            state,
            pki,
            before,
            client,
        }
    }

    fn damage(&self, name: &str, damage: Damage) {
        let path = self.state.path().join(name);
        let contents = fs::read(&path).unwrap();
        match damage {
            Damage::Missing => fs::remove_file(&path).unwrap(),
            Damage::Empty => fs::write(&path, "").unwrap(),
            Damage::Truncated => fs::write(&path, &contents[..contents.len() / 2]).unwrap(),
            Damage::Garbage => fs::write(&path, [0xff, 0x00, 0x80, b'g']).unwrap(),
        }
    }

    fn ensure(&self) -> Result<Ensured, PkiError> {
        self.pki.ensure(&names(), Timestamp::now())
    }

    /// The client from before the damage, with the authority it trusts, is still accepted.
    fn assert_client_gets_in(&self, node: &CertifiedNode) {
        let tls = ServerTls::new(node).unwrap();
        let outcome = connect(&tls, &self.before.ca, Some(&self.client), "localhost");
        assert_eq!((outcome.client, outcome.server), (Ok(()), Ok(())));
    }
}

fn contents(directory: &Path) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<_> = fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap())
        .map(|entry| {
            (
                entry.file_name().into_string().unwrap(),
                fs::read(entry.path()).unwrap(),
            )
        })
        .collect();
    files.sort();
    files
}

#[test]
fn a_lost_node_certificate_or_key_is_issued_again() {
    for name in ["node.crt", "node.key"] {
        for damage in ALL {
            let node = Node::new();
            node.damage(name, damage);
            let ensured = node.ensure().unwrap();
            let reason = match (name, damage) {
                (_, Damage::Missing) => format!("{name} is missing"),
                ("node.crt", _) => "node.crt is not a certificate".to_owned(),
                _ => "node.key is not a private key".to_owned(),
            };
            assert_eq!(ensured.renewed, Some(reason), "{name} {damage:?}");
            assert_eq!(ensured.node.ca, node.before.ca);
            assert!(!ensured.created_ca);
            node.assert_client_gets_in(&ensured.node);
            assert_eq!(node.ensure().unwrap().node, ensured.node, "healed for good");
        }
    }
}

#[test]
fn both_node_files_lost_are_issued_again() {
    let node = Node::new();
    node.damage("node.crt", Damage::Missing);
    node.damage("node.key", Damage::Missing);
    let ensured = node.ensure().unwrap();
    assert!(!ensured.created_ca);
    node.assert_client_gets_in(&ensured.node);
}

#[test]
fn a_lost_ca_certificate_is_recreated_and_clients_stay_valid() {
    for damage in ALL {
        let node = Node::new();
        node.damage("ca.crt", damage);
        let left = fs::read(node.state.path().join("ca.crt")).ok();
        let ensured = node.ensure().unwrap();
        let state = if damage == Damage::Missing {
            "missing"
        } else {
            "damaged"
        };
        assert_eq!(
            ensured.warning,
            Some(format!(
                "ca.crt was {state} and has been made again from ca.key"
            ))
        );
        assert!(!ensured.created_ca);
        assert_eq!(ensured.renewed, None, "the node certificate is still good");
        assert_eq!(ensured.node.cert, node.before.cert);
        node.assert_client_gets_in(&ensured.node);
        assert_eq!(
            fs::read(node.state.path().join("ca.crt.damaged")).ok(),
            left
        );
        assert_eq!(node.ensure().unwrap().warning, None, "healed for good");
    }
}

#[test]
fn a_lost_ca_certificate_of_another_name_keeps_that_name() {
    let state = tempfile::tempdir().unwrap();
    let foreign = Authority::create("corp", 10 * YEAR).unwrap();
    mainstay_records::write_durable(
        &state.path().join("ca.key"),
        foreign.key().expose().as_bytes(),
        0o600,
    )
    .unwrap();
    fs::write(state.path().join("ca.crt"), foreign.certificate()).unwrap();
    let pki = PkiDir::new(state.path());
    let before = pki.ensure(&names(), Timestamp::now()).unwrap().node;
    let client = alice(&foreign);
    let node = Node {
        state,
        pki,
        before,
        client,
    };
    node.damage("ca.crt", Damage::Missing);
    let ensured = node.ensure().unwrap();
    assert_eq!(
        node.pki.authority().unwrap().info().subject_cn,
        foreign.info().subject_cn
    );
    node.assert_client_gets_in(&ensured.node);
}

#[test]
fn a_lost_ca_certificate_is_not_guessed_when_the_key_is_of_another_authority() {
    let node = Node::new();
    node.damage("ca.crt", Damage::Missing);
    let other = authority().key();
    fs::write(node.state.path().join("ca.key"), other.expose()).unwrap();
    let before = contents(node.state.path());
    let error = node.ensure().unwrap_err();
    assert!(
        matches!(error, PkiError::CaCertificateLost { .. }),
        "{error}"
    );
    assert_eq!(contents(node.state.path()), before);
}

#[test]
fn a_damaged_ca_key_is_an_error_and_never_a_new_authority() {
    for damage in BROKEN {
        let node = Node::new();
        node.damage("ca.key", damage);
        let before = contents(node.state.path());
        let error = node.ensure().unwrap_err();
        let path = node.state.path().join("ca.key");
        assert!(
            matches!(error, PkiError::DamagedCaKey { .. }),
            "{damage:?}: {error}"
        );
        assert!(
            error
                .to_string()
                .starts_with(&format!("{} is not a usable", path.display()))
        );
        assert!(matches!(
            node.pki.authority(),
            Err(PkiError::DamagedCaKey { .. })
        ));
        assert_eq!(
            contents(node.state.path()),
            before,
            "nothing may be touched"
        );
    }
}

#[test]
fn a_damaged_ca_key_without_a_certificate_is_an_error_too() {
    for damage in BROKEN {
        let node = Node::new();
        node.damage("ca.key", damage);
        node.damage("ca.crt", Damage::Missing);
        assert!(matches!(node.ensure(), Err(PkiError::DamagedCaKey { .. })));
    }
}

#[test]
fn a_missing_ca_key_leaves_a_node_that_serves_but_does_not_issue() {
    let node = Node::new();
    node.damage("ca.key", Damage::Missing);
    let ensured = node.ensure().unwrap();
    assert_eq!(ensured.node, node.before);
    assert_eq!((ensured.renewed, ensured.warning), (None, None));
    node.assert_client_gets_in(&ensured.node);
    let error = node.pki.authority().unwrap_err();
    assert!(matches!(error, PkiError::MissingCaKey { .. }));
    assert!(
        error
            .to_string()
            .contains("cannot issue certificates; issue them where")
    );
}

#[test]
fn an_authority_lost_as_a_whole_is_not_replaced() {
    let node = Node::new();
    node.damage("ca.key", Damage::Missing);
    node.damage("ca.crt", Damage::Missing);
    let before = contents(node.state.path());
    let error = node.ensure().unwrap_err();
    assert!(matches!(error, PkiError::AuthorityLost { .. }), "{error}");
    assert_eq!(contents(node.state.path()), before);
}

#[test]
fn a_ca_key_of_another_authority_is_an_error() {
    let node = Node::new();
    fs::write(node.state.path().join("ca.key"), authority().key().expose()).unwrap();
    let error = node.ensure().unwrap_err();
    assert!(matches!(error, PkiError::CaKeyMismatch { .. }), "{error}");
    assert!(matches!(
        node.pki.authority(),
        Err(PkiError::CaKeyMismatch { .. })
    ));
}

#[test]
fn a_leaf_certificate_as_ca_crt_is_an_error() {
    let node = Node::new();
    fs::write(node.state.path().join("ca.crt"), &node.client.cert).unwrap();
    fs::write(node.state.path().join("ca.key"), node.client.key.expose()).unwrap();
    assert!(matches!(
        node.ensure(),
        Err(PkiError::NotAnAuthority { .. })
    ));
}

#[test]
fn a_node_certificate_of_another_authority_is_issued_again() {
    let node = Node::new();
    let foreign = authority().issue_node(&names(), YEAR).unwrap();
    fs::write(node.state.path().join("node.crt"), &foreign.cert).unwrap();
    fs::write(node.state.path().join("node.key"), foreign.key.expose()).unwrap();
    let ensured = node.ensure().unwrap();
    assert_eq!(
        ensured.renewed.as_deref(),
        Some("node.crt was not signed by the authority of ca.crt")
    );
    node.assert_client_gets_in(&ensured.node);
}

#[test]
fn a_renewal_interrupted_between_key_and_certificate_is_completed() {
    let node = Node::new();
    let next = node
        .pki
        .authority()
        .unwrap()
        .issue_node(&names(), YEAR)
        .unwrap();
    fs::write(node.state.path().join("node.key"), next.key.expose()).unwrap();
    let ensured = node.ensure().unwrap();
    assert_eq!(
        ensured.renewed.as_deref(),
        Some("node.key does not belong to node.crt")
    );
    node.assert_client_gets_in(&ensured.node);
}

#[test]
fn a_first_start_interrupted_anywhere_is_completed_with_the_same_key() {
    const ORDER: [&str; 4] = ["ca.key", "ca.crt", "node.key", "node.crt"];
    for written in 0..ORDER.len() {
        let node = Node::new();
        let key = read(node.state.path(), "ca.key");
        for name in &ORDER[written..] {
            node.damage(name, Damage::Missing);
        }
        let leftover = node
            .state
            .path()
            .join(format!(".{}.1-0.tmp", ORDER[written]));
        fs::write(&leftover, "half a file").unwrap();
        let ensured = node.ensure().unwrap();
        assert_eq!(ensured.created_ca, written == 0, "{written} files written");
        assert!(!leftover.exists(), "what the crash left is cleared away");
        if written > 0 {
            assert_eq!(read(node.state.path(), "ca.key"), key);
            node.assert_client_gets_in(&ensured.node);
        }
        assert_eq!(contents(node.state.path()).len(), 4);
    }
}
