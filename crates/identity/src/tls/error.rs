//! Errors of building a TLS configuration. Failures of a connection are errors of rustls, which
//! `explain` describes.

/// The reason a TLS configuration cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The authority's text holds no certificate, or a broken one.
    #[error("the authority's certificate (ca) is not readable; get it again from the node")]
    BadAuthority,
    /// The certificate's text holds none, or a broken one.
    #[error("the certificate (crt) is not readable; have a new one issued")]
    BadCertificate,
    /// The key's text holds none, or a broken one.
    #[error("the private key is not readable; have a new certificate issued")]
    BadKey,
    /// Certificate and key are not a pair.
    #[error("the private key does not belong to the certificate; have a new one issued")]
    KeyMismatch,
    /// A running server was given a certificate that comes with another authority.
    #[error("the authority has changed since the server started; restart it to trust the new one")]
    AuthorityChanged,
    /// The TLS library refuses the combination.
    #[error("cannot set up TLS")]
    Setup(#[from] rustls::Error),
    /// The TLS library refuses the authority for verifying clients.
    #[error("cannot verify clients with this authority")]
    Verifier(#[from] rustls::server::VerifierBuilderError),
}
