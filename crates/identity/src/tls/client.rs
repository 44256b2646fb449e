//! TLS of a client: it trusts only the authority of its configuration, and presents its own
//! certificate if it has one.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::ResolvesClientCert;
use rustls::sign::SingleCertAndKey;

use super::ALPN_H2;
use super::error::TlsError;
use super::material::{certified_key, roots};
use crate::crypto::provider;
use crate::private_key::PrivateKeyPem;

/// The TLS configuration of a client that trusts `ca_pem` and identifies itself with the
/// certificate and key, if given.
pub fn client_config(
    ca_pem: &str,
    identity: Option<(&str, &PrivateKeyPem)>,
) -> Result<Arc<ClientConfig>, TlsError> {
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(ca_pem)?);
    let mut config = match identity {
        None => builder.with_no_client_auth(),
        Some((cert, key)) => {
            let certified = SingleCertAndKey::from(certified_key(cert, key)?);
            let resolver: Arc<dyn ResolvesClientCert> = Arc::new(certified);
            builder.with_client_cert_resolver(resolver)
        }
    };
    config.alpn_protocols = vec![ALPN_H2.to_vec()];
    Ok(Arc::new(config))
}
