//! The one cryptographic provider and the few primitives needed from it. Nothing here may rely
//! on the process-wide default provider, which another crate may have set.

use std::fmt::Write as _;
use std::sync::Arc;

use rustls::SupportedCipherSuite;
use rustls::crypto::aws_lc_rs::{self, cipher_suite};
use rustls::crypto::{CryptoProvider, GetRandomFailed};

/// The provider every configuration and check of this crate uses.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

/// Computes SHA-256 with the provider, so that fingerprints need no second implementation.
pub(crate) fn sha256(bytes: &[u8]) -> Vec<u8> {
    let hash = match cipher_suite::TLS13_AES_128_GCM_SHA256 {
        SupportedCipherSuite::Tls12(suite) => suite.common.hash_provider,
        SupportedCipherSuite::Tls13(suite) => suite.common.hash_provider,
    };
    hash.hash(bytes).as_ref().to_vec()
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            // Writing to a String cannot fail.
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// Bytes from the provider's secure random source.
pub(crate) fn random<const N: usize>() -> Result<[u8; N], GetRandomFailed> {
    let mut bytes = [0; N];
    provider().secure_random.fill(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sha256_of_abc_is_the_published_digest() {
        assert_eq!(
            hex(&sha256(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }
}
