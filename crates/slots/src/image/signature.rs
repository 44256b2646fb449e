//! Signatures of images, in the format of cosign: a manifest in the same layout, named
//! `sha256-HEX.sig`, whose layers are payloads that contain the digest of the image's manifest.
//! Each payload's signature, ECDSA P-256 with SHA-256, is an annotation of its layer.

use std::fmt;

use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_ASN1, ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, ParsedPublicKey,
};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use serde::{Deserialize, Serialize};

use super::error::KeyError;
use crate::Digest;

pub(super) const PAYLOAD_TYPE: &str = "application/vnd.dev.cosign.simplesigning.v1+json";
pub(super) const SIGNATURE_ANNOTATION: &str = "dev.cosignproject.cosign/signature";
const SIGNATURE_KIND: &str = "cosign container image signature";

/// The name of the manifest with the signatures of `manifest`.
pub(super) fn reference(manifest: &Digest) -> String {
    format!("sha256-{}.sig", manifest.hex())
}

#[derive(Serialize, Deserialize)]
struct Payload {
    critical: Critical,
    optional: Option<serde_json::Value>,
}

#[derive(Serialize, Deserialize)]
struct Critical {
    identity: Identity,
    image: Signed,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Serialize, Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Serialize, Deserialize)]
struct Signed {
    #[serde(rename = "docker-manifest-digest")]
    manifest: Digest,
}

/// A public key whose signatures an upgrade image needs.
#[derive(Clone)]
pub struct VerifyingKey(ParsedPublicKey);

impl fmt::Debug for VerifyingKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VerifyingKey")
    }
}

impl VerifyingKey {
    /// Parses an ECDSA P-256 public key in PEM (`BEGIN PUBLIC KEY`).
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = SubjectPublicKeyInfoDer::from_pem_slice(pem.as_bytes());
        let der = der.map_err(|source| KeyError::Pem {
            expected: "public key in PEM",
            source,
        })?;
        ParsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, der.as_ref())
            .map(Self)
            .map_err(|_| KeyError::Algorithm)
    }

    /// True if `signature`, in Base64, is one of `payload` by this key, and `payload` is about
    /// `manifest`.
    pub(super) fn verifies(&self, payload: &[u8], signature: &str, manifest: Digest) -> bool {
        let Ok(signature) = STANDARD.decode(signature) else {
            return false;
        };
        // The signature first: the parser sees only bytes that a trusted key signed.
        self.0.verify_sig(payload, &signature).is_ok()
            && serde_json::from_slice(payload).is_ok_and(|payload: Payload| {
                payload.critical.kind == SIGNATURE_KIND
                    && payload.critical.image.manifest == manifest
            })
    }
}

/// A private key that signs images.
pub struct SigningKey(EcdsaKeyPair);

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningKey")
    }
}

impl SigningKey {
    /// Parses an ECDSA P-256 private key in PKCS#8 PEM (`BEGIN PRIVATE KEY`).
    pub fn from_pem(pem: &str) -> Result<Self, KeyError> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(pem.as_bytes());
        let der = der.map_err(|source| KeyError::Pem {
            expected: "PKCS#8 private key in PEM",
            source,
        })?;
        EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, der.secret_pkcs8_der())
            .map(Self)
            .map_err(|_| KeyError::Algorithm)
    }

    /// Signs the digest of a manifest. Returns the payload and its signature in Base64.
    pub(super) fn sign(&self, manifest: Digest) -> Result<(Vec<u8>, String), KeyError> {
        let payload = Payload {
            critical: Critical {
                identity: Identity {
                    reference: String::new(),
                },
                image: Signed { manifest },
                kind: SIGNATURE_KIND.to_owned(),
            },
            optional: None,
        };
        let payload = serde_json::to_vec(&payload).map_err(|_| KeyError::Algorithm)?;
        let signature = self.0.sign(&SystemRandom::new(), &payload);
        let signature = signature.map_err(|_| KeyError::Algorithm)?;
        Ok((payload, STANDARD.encode(signature)))
    }
}
