//! A private key as text. The type keeps keys out of logs: it has no Display, its Debug is
//! redacted, and reading it takes a call that is visible in review.

use std::fmt;

/// A private key in PEM form.
#[derive(Clone, PartialEq, Eq)]
pub struct PrivateKeyPem(String);

impl PrivateKeyPem {
    /// Wraps the PEM text of a key.
    pub fn new(pem: impl Into<String>) -> Self {
        Self(pem.into())
    }

    /// The PEM text itself, for writing it to its file or handing it to the TLS layer.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for PrivateKeyPem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PrivateKeyPem(redacted)")
    }
}
