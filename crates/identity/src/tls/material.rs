//! Trust anchors and key pairs for the configurations of both sides.

use std::sync::Arc;

use rustls::RootCertStore;
use rustls::sign::CertifiedKey;

use super::error::TlsError;
use crate::pem::{certificates, signing_key};
use crate::private_key::PrivateKeyPem;

pub(super) fn roots(ca_pem: &str) -> Result<RootCertStore, TlsError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(ca_pem).ok_or(TlsError::BadAuthority)? {
        roots.add(certificate).map_err(|_| TlsError::BadAuthority)?;
    }
    Ok(roots)
}

pub(super) fn certified_key(
    cert_pem: &str,
    key: &PrivateKeyPem,
) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates(cert_pem).ok_or(TlsError::BadCertificate)?;
    let certified = CertifiedKey::new(chain, signing_key(key).ok_or(TlsError::BadKey)?);
    match certified.keys_match() {
        Ok(()) => Ok(Arc::new(certified)),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::KeyMismatch),
        Err(_) => Err(TlsError::BadCertificate),
    }
}
