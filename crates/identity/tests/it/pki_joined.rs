//! A node that has a certificate of an authority whose key is elsewhere.

use std::fs;
use std::path::Path;

use mainstay_identity::{Authority, IssuedPem, NodeNames, PkiDir, PkiError};

use crate::fixtures::{DAY, YEAR, moment, names};

struct Joined {
    state: tempfile::TempDir,
    authority: Authority,
    issued: IssuedPem,
}

impl Joined {
    fn new() -> Self {
        let authority = Authority::create_at("corp", 10 * YEAR, moment()).unwrap();
        let issued = authority.issue_node_at(&names(), YEAR, moment()).unwrap();
        let state = tempfile::tempdir().unwrap();
        let joined = Self {
            state,
            authority,
            issued,
        };
        joined.put("ca.crt", joined.authority.certificate(), 0o644);
        joined.put("node.crt", &joined.issued.cert, 0o644);
        joined.put("node.key", joined.issued.key.expose(), 0o600);
        joined
    }

    fn put(&self, name: &str, text: &str, mode: u32) {
        mainstay_records::write_durable(&self.path().join(name), text.as_bytes(), mode).unwrap();
    }

    fn path(&self) -> &Path {
        self.state.path()
    }

    fn ensure(&self, names: &NodeNames, now: jiff::Timestamp) -> Result<Option<String>, PkiError> {
        let ensured = PkiDir::new(self.path()).ensure(names, now)?;
        assert_eq!(
            ensured.node.cert, self.issued.cert,
            "nothing may be replaced"
        );
        assert!(!ensured.created_ca && ensured.renewed.is_none());
        Ok(ensured.warning)
    }

    fn problem(&self, now: jiff::Timestamp) -> String {
        let error = self.ensure(&names(), now).unwrap_err();
        assert!(
            matches!(error, PkiError::NodeCertificate { .. }),
            "{error:?}"
        );
        error.to_string()
    }
}

#[test]
fn a_joined_node_serves_with_the_given_certificate() {
    let joined = Joined::new();
    assert_eq!(joined.ensure(&names(), moment()).unwrap(), None);
    assert!(!joined.path().join("ca.key").exists());
}

#[test]
fn a_coming_expiry_is_a_warning() {
    let warning = Joined::new()
        .ensure(&names(), moment() + 300 * DAY)
        .unwrap();
    assert_eq!(
        warning.as_deref(),
        Some(
            "node.crt is past two thirds of its life (ends 2027-03-01); without ca.key this node \
             cannot renew it"
        )
    );
}

#[test]
fn a_missing_name_is_a_warning() {
    let mut more = names();
    more.dns.push("new.lab".into());
    let warning = Joined::new().ensure(&more, moment()).unwrap().unwrap();
    assert!(
        warning.starts_with("node.crt does not name new.lab; "),
        "{warning}"
    );
}

#[test]
fn a_clock_before_the_certificate_is_a_warning() {
    let warning = Joined::new()
        .ensure(&names(), moment() - 30 * DAY)
        .unwrap()
        .unwrap();
    let told: Vec<&str> = warning.split("; ").collect();
    assert!(
        told[0].starts_with("ca.crt is not valid before 2026-03-01"),
        "{warning}"
    );
    assert!(
        told.contains(&"node.crt is not valid before 2026-03-01"),
        "{warning}"
    );
}

#[test]
fn an_expired_certificate_is_an_error_with_the_remedy() {
    let joined = Joined::new();
    assert_eq!(
        joined.problem(moment() + 2 * YEAR),
        format!(
            "node.crt expired on 2027-03-01, and without ca.key this node cannot issue another; \
             put a new node.crt and node.key signed by the authority of ca.crt into {}",
            joined.path().display()
        )
    );
}

#[test]
fn a_key_that_does_not_fit_is_an_error() {
    let joined = Joined::new();
    let other = joined
        .authority
        .issue_node_at(&names(), YEAR, moment())
        .unwrap();
    joined.put("node.key", other.key.expose(), 0o600);
    assert!(
        joined
            .problem(moment())
            .starts_with("node.key does not belong to node.crt, ")
    );
}

#[test]
fn a_certificate_of_another_authority_is_an_error() {
    let joined = Joined::new();
    let other = Authority::create_at("corp", YEAR, moment()).unwrap();
    joined.put("ca.crt", other.certificate(), 0o644);
    let problem = joined.problem(moment());
    assert!(problem.starts_with("node.crt was not signed by the authority of ca.crt, "));
}

#[test]
fn one_of_several_authorities_in_ca_crt_is_enough() {
    let joined = Joined::new();
    let next = Authority::create_at("corp", YEAR, moment()).unwrap();
    let both = format!("{}{}", next.certificate(), joined.authority.certificate());
    joined.put("ca.crt", &both, 0o644);
    assert_eq!(joined.ensure(&names(), moment()).unwrap(), None);
}

#[test]
fn missing_or_damaged_files_are_errors() {
    for name in ["node.crt", "node.key"] {
        let joined = Joined::new();
        fs::remove_file(joined.path().join(name)).unwrap();
        assert!(
            joined
                .problem(moment())
                .starts_with(&format!("{name} is missing, "))
        );
        joined.put(name, "garbage", 0o600);
        assert!(
            joined
                .problem(moment())
                .starts_with(&format!("{name} is not a "))
        );
    }
    let joined = Joined::new();
    joined.put("ca.crt", "garbage", 0o644);
    let error = joined.ensure(&names(), moment()).unwrap_err();
    assert!(
        matches!(error, PkiError::DamagedCaCertificate { .. }),
        "{error:?}"
    );
    joined.put("ca.crt", &joined.issued.cert, 0o644);
    let error = joined.ensure(&names(), moment()).unwrap_err();
    assert!(
        matches!(error, PkiError::NotAnAuthority { .. }),
        "{error:?}"
    );
}
