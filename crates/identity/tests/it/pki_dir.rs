use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use mainstay_identity::tls::ServerTls;
use mainstay_identity::{CertificateInfo, PkiDir, PkiError, SecretFileError};

use crate::fixtures::{DAY, YEAR, alice, connect, moment, names};

pub(crate) fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap()
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn the_first_start_creates_an_authority_and_a_node_certificate() {
    let state = tempfile::tempdir().unwrap();
    let directory = state.path().join("new/pki");
    let ensured = PkiDir::new(&directory).ensure(&names(), moment()).unwrap();
    assert!(ensured.created_ca);
    assert_eq!((ensured.renewed, ensured.warning), (None, None));
    assert_eq!(ensured.node.info.subject_cn, "node-1");
    assert_eq!(ensured.node.info.not_after, moment() + YEAR);
    let ca = CertificateInfo::from_pem(&ensured.node.ca).unwrap();
    assert_eq!(ca.not_after.to_string(), "2036-03-01T12:00:00Z");

    assert_eq!(mode(&directory), 0o700);
    for (name, expected) in [
        ("ca.crt", 0o644),
        ("ca.key", 0o600),
        ("node.crt", 0o644),
        ("node.key", 0o600),
    ] {
        assert_eq!(mode(&directory.join(name)), expected, "{name}");
    }
    assert_eq!(read(&directory, "node.crt"), ensured.node.cert);
    assert_eq!(read(&directory, "node.key"), ensured.node.key.expose());
    assert_eq!(read(&directory, "ca.crt"), ensured.node.ca);
}

#[test]
fn later_starts_change_nothing() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    let first = pki.ensure(&names(), moment()).unwrap();
    let second = pki.ensure(&names(), moment() + 30 * DAY).unwrap();
    assert_eq!(second.node, first.node);
    assert!(!second.created_ca);
    assert_eq!((second.renewed, second.warning), (None, None));
}

#[test]
fn clients_of_the_directory_reach_the_node() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    let node = pki.ensure(&names(), jiff::Timestamp::now()).unwrap().node;
    let client = alice(&pki.authority().unwrap());
    let tls = ServerTls::new(&node).unwrap();
    let outcome = connect(&tls, &node.ca, Some(&client), "127.0.0.1");
    assert_eq!((outcome.client, outcome.server), (Ok(()), Ok(())));
}

#[test]
fn the_node_certificate_is_renewed_after_two_thirds_of_its_life() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    let first = pki.ensure(&names(), moment()).unwrap().node;
    let before = pki.ensure(&names(), moment() + 243 * DAY).unwrap();
    assert_eq!(before.node, first);
    let due = pki.ensure(&names(), moment() + 244 * DAY).unwrap();
    assert_eq!(
        due.renewed.as_deref(),
        Some("node.crt is past two thirds of its life (ends 2027-03-01)")
    );
    assert_ne!(due.node.info.serial, first.info.serial);
    assert_ne!(due.node.key, first.key);
    assert_eq!(due.node.ca, first.ca);
    assert_eq!(due.node.info.not_after, moment() + 244 * DAY + YEAR);
}

#[test]
fn an_expired_node_certificate_is_issued_anew() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    pki.ensure(&names(), moment()).unwrap();
    let ensured = pki.ensure(&names(), moment() + 2 * YEAR).unwrap();
    assert_eq!(
        ensured.renewed.as_deref(),
        Some("node.crt expired on 2027-03-01")
    );
}

#[test]
fn new_names_reissue_the_certificate_and_dropped_ones_do_not() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    let first = pki.ensure(&names(), moment()).unwrap().node;

    let mut fewer = names();
    fewer.dns.pop();
    assert_eq!(pki.ensure(&fewer, moment()).unwrap().node, first);

    let mut more = names();
    more.ips.push("10.0.0.7".parse().unwrap());
    let ensured = pki.ensure(&more, moment()).unwrap();
    assert_eq!(
        ensured.renewed.as_deref(),
        Some("node.crt does not name 10.0.0.7")
    );
    assert!(ensured.node.info.sans.contains(&"10.0.0.7".to_owned()));
    assert_eq!(pki.ensure(&more, moment()).unwrap().renewed, None);

    let mut renamed = more.clone();
    renamed.common_name = "node-2".into();
    let ensured = pki.ensure(&renamed, moment()).unwrap();
    assert_eq!(
        ensured.renewed.as_deref(),
        Some("node.crt is for node \"node-1\", this is \"node-2\"")
    );
}

#[test]
fn names_no_certificate_can_hold_do_not_renew_it_on_every_start() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    let mut odd = names();
    odd.dns
        .extend(["bad name".to_owned(), "UPPER.lab.".to_owned()]);
    odd.common_name = "  node-1\u{7}".into();
    let first = pki.ensure(&odd, moment()).unwrap();
    assert_eq!(pki.ensure(&odd, moment()).unwrap().node, first.node);
}

#[test]
fn an_authority_near_expiry_is_a_warning_and_an_expired_one_an_error() {
    let state = tempfile::tempdir().unwrap();
    let pki = PkiDir::new(state.path());
    let first = pki.ensure(&names(), moment()).unwrap();
    let end = CertificateInfo::from_pem(&first.node.ca).unwrap().not_after;
    let near = pki.ensure(&names(), end - 10 * DAY).unwrap();
    assert_eq!(
        near.warning.as_deref(),
        Some("ca.crt expires in 10 days (2036-03-01)")
    );
    let error = pki.ensure(&names(), end + DAY).unwrap_err();
    assert!(
        matches!(error, PkiError::AuthorityExpired { .. }),
        "{error}"
    );
    assert!(
        error
            .to_string()
            .contains("expired on 2036-03-01; with ca.key beside it, remove it")
    );

    fs::remove_file(state.path().join("ca.crt")).unwrap();
    let healed = pki.ensure(&names(), end + DAY).unwrap();
    let renewed = CertificateInfo::from_pem(&healed.node.ca).unwrap();
    let before = CertificateInfo::from_pem(&first.node.ca).unwrap();
    assert_eq!(renewed.subject_cn, before.subject_cn);
    assert!(renewed.not_after > end + 9 * YEAR);
}

#[test]
fn keys_that_others_can_read_are_refused() {
    for (name, bits) in [("ca.key", 0o644), ("node.key", 0o640), ("ca.key", 0o604)] {
        let state = tempfile::tempdir().unwrap();
        let pki = PkiDir::new(state.path());
        pki.ensure(&names(), moment()).unwrap();
        let path = state.path().join(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(bits)).unwrap();
        let error = pki.ensure(&names(), moment()).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!(
                "{name} can be read by others (mode {bits:04o}); chmod 600 {}",
                path.display()
            )
        );
    }
}

#[test]
fn a_file_that_cannot_be_read_is_an_error_that_names_it() {
    for name in ["ca.crt", "ca.key", "node.crt", "node.key"] {
        let state = tempfile::tempdir().unwrap();
        let pki = PkiDir::new(state.path());
        pki.ensure(&names(), moment()).unwrap();
        let path = state.path().join(name);
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
        let error = pki.ensure(&names(), moment()).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with(&format!("cannot read {}", path.display())),
            "{error}"
        );
        let unreadable = matches!(
            error,
            PkiError::Read { .. } | PkiError::Secret(SecretFileError::Unreadable { .. })
        );
        assert!(unreadable, "{error:?}");
    }
}

#[test]
fn a_directory_that_cannot_be_created_is_an_error_that_names_it() {
    let state = tempfile::tempdir().unwrap();
    let path = state.path().join("file");
    fs::write(&path, "").unwrap();
    let error = PkiDir::new(path.join("pki"))
        .ensure(&names(), moment())
        .unwrap_err();
    assert!(matches!(error, PkiError::Directory { .. }), "{error:?}");
}

#[test]
fn starts_at_the_same_time_agree_on_one_authority() {
    let state = tempfile::tempdir().unwrap();
    let ensured: Vec<_> = std::thread::scope(|scope| {
        let starts: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    PkiDir::new(state.path())
                        .ensure(&names(), moment())
                        .unwrap()
                })
            })
            .collect();
        starts
            .into_iter()
            .map(|start| start.join().unwrap())
            .collect()
    });
    assert_eq!(ensured.iter().filter(|one| one.created_ca).count(), 1);
    assert!(ensured.iter().all(|one| one.node == ensured[0].node));
}

#[test]
fn no_key_shows_in_debug_output() {
    let state = tempfile::tempdir().unwrap();
    let ensured = PkiDir::new(state.path())
        .ensure(&names(), moment())
        .unwrap();
    let shown = format!("{ensured:?}");
    assert!(!shown.contains(ensured.node.key.expose().lines().nth(1).unwrap()));
    assert!(!shown.contains("PRIVATE KEY"));
}
