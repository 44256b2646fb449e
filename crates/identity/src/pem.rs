//! Parsing of PEM text for the TLS layer. Unreadable text is `None`: the caller knows its file or
//! field and reports it.

use std::sync::Arc;

use rustls::sign::SigningKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::crypto::provider;
use crate::private_key::PrivateKeyPem;

/// Parses all certificates; `None` if there is none or one is truncated.
pub(crate) fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .ok()?;
    (!found.is_empty()).then_some(found)
}

/// Parses a key to sign with.
pub(crate) fn signing_key(key: &PrivateKeyPem) -> Option<Arc<dyn SigningKey>> {
    let der = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).ok()?;
    provider().key_provider.load_private_key(der).ok()
}
