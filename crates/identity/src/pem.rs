//! From PEM text to what the TLS layer works with. Anything unreadable is simply nothing here:
//! the caller knows which file or field it came from and says so.

use std::sync::Arc;

use rustls::sign::SigningKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::crypto::provider;
use crate::private_key::PrivateKeyPem;

/// All certificates of the text, or nothing if one of them is cut short or there is none.
pub(crate) fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    let found: Vec<_> = CertificateDer::pem_slice_iter(pem.as_bytes())
        .collect::<Result<_, _>>()
        .ok()?;
    (!found.is_empty()).then_some(found)
}

/// The key, ready to sign with.
pub(crate) fn signing_key(key: &PrivateKeyPem) -> Option<Arc<dyn SigningKey>> {
    let der = PrivateKeyDer::from_pem_slice(key.expose().as_bytes()).ok()?;
    provider().key_provider.load_private_key(der).ok()
}
