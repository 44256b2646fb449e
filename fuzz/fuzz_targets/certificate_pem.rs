//! Certificates: parsed fields are plain text and plain values, and a caller never gets more than
//! the role in the certificate's organizations.
#![no_main]

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use libfuzzer_sys::fuzz_target;
use mainstay_identity::{Caller, CertificateInfo, NODE_ORGANIZATION, Role, Via};

fuzz_target!(|data: &[u8]| {
    let encoded = STANDARD.encode(data);
    let pem = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
    let info = CertificateInfo::from_der(data);
    assert_eq!(CertificateInfo::from_pem(&pem), info, "the same in PEM");
    match (Caller::from_certificate(data), &info) {
        (Ok(caller), Ok(info)) => check_caller(&caller, info),
        (caller, info) => assert_eq!(caller.err().as_ref(), info.as_ref().err()),
    }
    if let Ok(info) = &info {
        check_info(info);
    }
    if let Ok(text) = std::str::from_utf8(data)
        && let Ok(info) = CertificateInfo::from_pem(text)
    {
        check_info(&info);
    }
});

fn check_info(info: &CertificateInfo) {
    let is_hex = |text: &str| text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    assert!(is_hex(&info.serial) && info.serial.len().is_multiple_of(2));
    assert!(is_hex(&info.fingerprint) && info.fingerprint.len() == 64);
    assert_eq!(info.expires_in(info.not_after).as_nanos(), 0);
    assert_eq!(info.expires_in(info.not_before), info.lifetime());
    assert!(!info.is_expired(info.not_after), "valid to the last moment");
    assert!(info.lifetime().is_negative() || info.renew_due(info.not_after));
}

fn check_caller(caller: &Caller, info: &CertificateInfo) {
    let holds = |name: &str| info.organizations.iter().any(|held| held == name);
    assert_eq!(caller.is_node, holds(NODE_ORGANIZATION));
    let highest = Role::ALL.into_iter().rfind(|role| holds(role.as_str()));
    assert_eq!(caller.role, highest);
    assert!(!caller.name.is_empty());
    assert!(
        !caller.to_string().contains(char::is_control),
        "could forge a log line"
    );
    let via = Via::Certificate {
        names: info.sans.clone(),
        serial: info.serial.clone(),
        fingerprint: info.fingerprint.clone(),
        not_after: info.not_after,
    };
    assert_eq!(caller.via, via);
}
