use std::time::Duration;

use jiff::Timestamp;
use mainstay_identity::tls::certificate_warning;
use mainstay_identity::{Authority, CertificateInfo, ClientSpec};

use crate::fixtures::{DAY, YEAR, moment};

fn valid_for(ttl: Duration) -> CertificateInfo {
    let authority = Authority::create_at("test", 10 * YEAR, moment()).unwrap();
    let spec = ClientSpec {
        name: "alice".into(),
        roles: vec![],
        ttl,
    };
    authority.issue_client_at(&spec, moment()).unwrap().info
}

fn warning(info: &CertificateInfo, now: Timestamp) -> Option<String> {
    certificate_warning("context \"lab\"", info, now)
}

#[test]
fn no_warning_while_there_is_time() {
    let info = valid_for(YEAR);
    assert_eq!(warning(&info, moment()), None);
    assert_eq!(warning(&info, info.not_after - 31 * DAY), None);
}

#[test]
fn the_last_thirty_days_warn_with_the_date() {
    let info = valid_for(YEAR);
    assert!(warning(&info, info.not_after - 30 * DAY).is_some());
    assert_eq!(
        warning(&info, info.not_after - 3 * DAY).unwrap(),
        "certificate of context \"lab\" expires in 3 days (2027-03-01); \
         mainstay pki client issues a new one"
    );
}

#[test]
fn the_last_hours_are_counted_in_smaller_units() {
    let info = valid_for(YEAR);
    let said = |left: Duration| warning(&info, info.not_after - left).unwrap();
    assert!(said(DAY + DAY / 2).contains("expires in 1 day ("));
    assert!(said(DAY / 4).contains("expires in 6 hours ("));
    assert!(said(Duration::from_secs(61)).contains("expires in 1 minute ("));
}

#[test]
fn a_short_certificate_warns_in_its_last_third() {
    let info = valid_for(9 * DAY);
    assert_eq!(warning(&info, info.not_after - 4 * DAY), None);
    assert!(warning(&info, info.not_after - 2 * DAY).is_some());
}

#[test]
fn an_expired_certificate_warns_with_the_date() {
    let info = valid_for(DAY);
    let said = warning(&info, info.not_after + YEAR).unwrap();
    assert!(
        said.starts_with("certificate of context \"lab\" expired on 2026-03-02; "),
        "{said}"
    );
}

#[test]
fn renewal_is_due_after_two_thirds_of_life() {
    let info = valid_for(90 * DAY);
    assert!(!info.renew_due(info.not_after - 31 * DAY));
    assert!(info.renew_due(info.not_after - 29 * DAY));
    assert!(info.expires_in(info.not_after + DAY).is_negative());
}
