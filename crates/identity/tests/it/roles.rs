use mainstay_identity::{Authority, Caller, ClientSpec, Role, Via};
use proptest::prelude::*;

use crate::fixtures::{YEAR, alice, authority, names};

fn der(pem: &str) -> Vec<u8> {
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject as _;
    CertificateDer::from_pem_slice(pem.as_bytes())
        .unwrap()
        .to_vec()
}

fn client(authority: &Authority, name: &str, roles: &[Role]) -> Caller {
    let spec = ClientSpec {
        name: name.into(),
        roles: roles.to_vec(),
        ttl: YEAR,
    };
    Caller::from_certificate(&der(&authority.issue_client(&spec).unwrap().cert)).unwrap()
}

#[test]
fn each_role_is_above_the_one_before() {
    assert!(Role::Reader < Role::Operator && Role::Operator < Role::Admin);
}

#[test]
fn an_unknown_role_is_answered_with_the_valid_ones() {
    let error = "os:root".parse::<Role>().unwrap_err();
    assert_eq!(
        error.to_string(),
        "unknown role \"os:root\"; the roles are os:reader, os:operator and os:admin"
    );
}

#[test]
fn a_client_certificate_gives_name_role_and_serial() {
    let issued = alice(&authority());
    let caller = Caller::from_certificate(&der(&issued.cert)).unwrap();
    assert_eq!(caller.name, "alice");
    assert_eq!(caller.role, Some(Role::Reader));
    assert!(!caller.is_node);
    let Via::Certificate {
        serial,
        fingerprint,
        not_after,
        names,
    } = &caller.via
    else {
        panic!("{caller:?}")
    };
    assert_eq!(
        (serial, fingerprint, not_after, names),
        (
            &issued.info.serial,
            &issued.info.fingerprint,
            &issued.info.not_after,
            &issued.info.sans
        )
    );
    assert_eq!(caller.to_string(), "alice (os:reader)");
}

#[test]
fn of_several_roles_the_highest_counts() {
    let caller = client(
        &authority(),
        "ann",
        &[Role::Reader, Role::Admin, Role::Operator],
    );
    assert_eq!(caller.role, Some(Role::Admin));
}

#[test]
fn a_certificate_without_a_role_has_none() {
    assert_eq!(
        client(&authority(), "bob", &[]).to_string(),
        "bob (no role)"
    );
}

#[test]
fn a_node_certificate_has_no_role_of_its_own() {
    let issued = authority().issue_node(&names(), YEAR).unwrap();
    let caller = Caller::from_certificate(&der(&issued.cert)).unwrap();
    assert!(caller.is_node);
    assert_eq!(caller.role, None);
    assert_eq!(caller.to_string(), "node-1 (os:node)");
}

#[test]
fn root_and_the_daemons_own_user_are_admins_and_nobody_else() {
    assert_eq!(Caller::from_uid(0, 990).to_string(), "uid 0 (os:admin)");
    assert_eq!(Caller::from_uid(990, 990).role, Some(Role::Admin));
    let other = Caller::from_uid(1000, 990);
    assert_eq!(other.role, None);
    assert_eq!(other.via, Via::LocalUser { uid: 1000 });
}

#[test]
fn the_loopback_listener_reads_only() {
    let caller = Caller::loopback_read_only();
    assert_eq!(
        (caller.role, caller.via),
        (Some(Role::Reader), Via::LoopbackReadOnly)
    );
}

#[test]
fn organizations_that_are_no_roles_are_ignored_and_a_name_cannot_break_a_log_line() {
    let mut params = rcgen::CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params
        .distinguished_name
        .push(rcgen::DnType::OrganizationName, "system:masters");
    // A second Organization attribute, by its OID, as in certificates with several.
    let organization = rcgen::DnType::CustomDnType(vec![2, 5, 4, 10]);
    params.distinguished_name.push(organization, "os:operator");
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "eve\nroot (os:admin)");
    let certificate = params
        .self_signed(&rcgen::KeyPair::generate().unwrap())
        .unwrap();
    let caller = Caller::from_certificate(certificate.der()).unwrap();
    assert_eq!(caller.role, Some(Role::Operator));
    assert_eq!(caller.name, "eve?root (os:admin)");
}

#[test]
fn bytes_that_are_no_certificate_give_no_caller() {
    assert!(Caller::from_certificate(b"not a certificate").is_err());
    assert!(Caller::from_certificate(&[]).is_err());
}

proptest! {
    #[test]
    fn only_the_three_names_are_roles(text in prop_oneof![
        ".*", "os:[a-z]{0,8}", "(os:)?(reader|operator|admin|node)[ ]?",
    ]) {
        match text.parse::<Role>() {
            Ok(role) => prop_assert_eq!(role.to_string(), text),
            Err(_) => prop_assert!(Role::ALL.iter().all(|role| role.as_str() != text)),
        }
    }

    #[test]
    fn no_bytes_cause_a_panic_in_the_certificate_parser(
        bytes in proptest::collection::vec(any::<u8>(), 0..400),
    ) {
        prop_assert!(Caller::from_certificate(&bytes).is_err());
    }
}
