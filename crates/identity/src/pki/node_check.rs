//! Validation of the node's certificate: the checks its peers make, and whether renewal is due.
//! Replacement is the task of the directory.

use std::time::Duration;

use jiff::Timestamp;
use rustls::RootCertStore;
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls_pki_types::{CertificateDer, UnixTime};

use super::expiry::day;
use super::info::CertificateInfo;
use super::names::{NodeNames, common_name};
use crate::crypto::provider;
use crate::pem::{certificates, signing_key};
use crate::private_key::PrivateKeyPem;

/// The reason the node needs another certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Peers will refuse this one.
    Unusable(String),
    /// This one works, but not for long or not under every name.
    Wanting(String),
}

impl Fault {
    pub(crate) fn into_text(self) -> String {
        match self {
            Self::Unusable(text) | Self::Wanting(text) => text,
        }
    }
}

/// The certificate and key as found on disk.
pub(crate) struct Found<'a> {
    pub(crate) cert: Option<&'a str>,
    pub(crate) key: Option<&'a PrivateKeyPem>,
    pub(crate) ca: &'a str,
}

/// Returns the most severe fault, or the fields of the certificate if there is none.
pub(crate) fn check(
    found: &Found<'_>,
    wanted: &NodeNames,
    now: Timestamp,
) -> (Option<CertificateInfo>, Option<Fault>) {
    let (info, chain) = match readable(found) {
        Ok(readable) => readable,
        Err(problem) => return (None, Some(Fault::Unusable(problem))),
    };
    let fault = unusable(found, &info, &chain, now)
        .map(Fault::Unusable)
        .or_else(|| wanting(&info, &chain, wanted, now).map(Fault::Wanting));
    (Some(info), fault)
}

type Chain = Vec<CertificateDer<'static>>;

fn readable(found: &Found<'_>) -> Result<(CertificateInfo, Chain), String> {
    let cert = found.cert.ok_or("node.crt is missing")?;
    let key = found.key.ok_or("node.key is missing")?;
    let info = CertificateInfo::from_pem(cert).map_err(|_| "node.crt is not a certificate")?;
    let chain = certificates(cert).ok_or("node.crt is not a certificate")?;
    let signer = signing_key(key).ok_or("node.key is not a private key")?;
    CertifiedKey::new(chain.clone(), signer)
        .keys_match()
        .map_err(|_| "node.key does not belong to node.crt")?;
    Ok((info, chain))
}

fn unusable(
    found: &Found<'_>,
    info: &CertificateInfo,
    chain: &[CertificateDer<'static>],
    now: Timestamp,
) -> Option<String> {
    if info.is_expired(now) {
        return Some(format!("node.crt expired on {}", day(info.not_after)));
    }
    (!signed_by(chain, found.ca, info.not_before))
        .then(|| "node.crt was not signed by the authority of ca.crt".to_owned())
}

/// True if a chain leads to the authority. Checked for the start of validity, so that the result
/// depends on the signature and not on the clock.
pub(crate) fn signed_by(chain: &[CertificateDer<'_>], ca: &str, at: Timestamp) -> bool {
    let Some((leaf, intermediates)) = chain.split_first() else {
        return false;
    };
    let Some(authorities) = certificates(ca) else {
        return false;
    };
    let Ok(leaf) = ParsedCertificate::try_from(leaf) else {
        return false;
    };
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(authorities);
    let since_epoch = Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    verify_server_cert_signed_by_trust_anchor(
        &leaf,
        &roots,
        intermediates,
        UnixTime::since_unix_epoch(since_epoch),
        provider().signature_verification_algorithms.all,
    )
    .is_ok()
}

fn wanting(
    info: &CertificateInfo,
    chain: &[CertificateDer<'static>],
    wanted: &NodeNames,
    now: Timestamp,
) -> Option<String> {
    if now < info.not_before {
        return Some(format!(
            "node.crt is not valid before {}",
            day(info.not_before)
        ));
    }
    if let Ok(name) = common_name(&wanted.common_name)
        && name != info.subject_cn
    {
        return Some(format!(
            "node.crt is for node {:?}, this is {name:?}",
            info.subject_cn
        ));
    }
    if let Some(leaf) = chain.first()
        && let Ok(leaf) = ParsedCertificate::try_from(leaf)
    {
        let names = wanted.server_names();
        if let Some(missing) = names
            .iter()
            .find(|name| verify_server_name(&leaf, name).is_err())
        {
            return Some(format!("node.crt does not name {}", missing.to_str()));
        }
    }
    info.renew_due(now).then(|| {
        format!(
            "node.crt is past two thirds of its life (ends {})",
            day(info.not_after)
        )
    })
}
