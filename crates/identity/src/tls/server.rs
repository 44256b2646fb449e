//! TLS of a node: it serves with its current certificate, which can be replaced while it runs, and
//! only clients with a certificate of its authority. It must never accept a client without one.

use std::fmt;
use std::sync::Arc;

use arc_swap::ArcSwap;
use rustls::ServerConfig;
use rustls::server::{ClientHello, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls_pki_types::TrustAnchor;

use super::ALPN_H2;
use super::error::TlsError;
use super::material::{certified_key, roots};
use crate::crypto::provider;
use crate::pki::CertifiedNode;

/// The serving side's TLS. One configuration lasts as long as the process; handshakes that begin
/// after [`ServerTls::replace`] use the new certificate, existing connections continue.
pub struct ServerTls {
    current: Arc<CurrentCertificate>,
    trusted: Vec<TrustAnchor<'static>>,
    config: Arc<ServerConfig>,
}

impl ServerTls {
    /// Serves with the node's certificate and verifies clients against its authority.
    pub fn new(node: &CertifiedNode) -> Result<Self, TlsError> {
        let roots = roots(&node.ca)?;
        let trusted = roots.roots.clone();
        let certified = certified_key(&node.cert, &node.key)?;
        let current = Arc::new(CurrentCertificate(ArcSwap::from(certified)));
        let verifier =
            WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).build()?;
        let mut config = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()?
            .with_client_cert_verifier(verifier)
            .with_cert_resolver(Arc::<CurrentCertificate>::clone(&current));
        config.alpn_protocols = vec![ALPN_H2.to_vec()];
        Ok(Self {
            current,
            trusted,
            config: Arc::new(config),
        })
    }

    /// Serves with another certificate from the next handshake on. It must come with the same
    /// authority; on an error the old certificate stays.
    pub fn replace(&self, node: &CertifiedNode) -> Result<(), TlsError> {
        if roots(&node.ca)?.roots != self.trusted {
            return Err(TlsError::AuthorityChanged);
        }
        self.current.0.store(certified_key(&node.cert, &node.key)?);
        Ok(())
    }

    /// The configuration to accept connections with.
    pub fn config(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.config)
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls")
            .field("trusted", &self.trusted.len())
            .finish_non_exhaustive()
    }
}

struct CurrentCertificate(ArcSwap<CertifiedKey>);

impl fmt::Debug for CurrentCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CurrentCertificate").finish_non_exhaustive()
    }
}

impl ResolvesServerCert for CurrentCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.0.load_full())
    }
}
