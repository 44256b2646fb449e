//! The fields of a certificate as plain values. Parsing proves nothing: verification is the task
//! of the TLS layer.

use std::net::IpAddr;

use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;
use x509_parser::x509::AttributeTypeAndValue;

use crate::crypto::{hex, sha256};

/// The fields of a certificate that people and the authorizer use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateInfo {
    /// Common name of the subject; empty when there is none.
    pub subject_cn: String,
    /// Every Organization of the subject, in order.
    pub organizations: Vec<String>,
    /// Serial number, lower-case hex.
    pub serial: String,
    /// SHA-256 of the DER form, lower-case hex.
    pub fingerprint: String,
    /// First moment of validity.
    pub not_before: Timestamp,
    /// Last moment of validity.
    pub not_after: Timestamp,
    /// DNS names and IP addresses of the certificate.
    pub sans: Vec<String>,
    /// Common name of the issuer; empty when there is none.
    pub issuer_cn: String,
    /// True if it may sign other certificates.
    pub is_ca: bool,
}

/// The error of bytes that are not a certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnreadableCertificate {
    /// No complete `CERTIFICATE` block in the text.
    #[error("no complete PEM block of a certificate in the text")]
    NoPem,
    /// The contents of the block are not a certificate.
    #[error("the contents are not an X.509 certificate")]
    NotX509,
    /// A date outside the calendar.
    #[error("the certificate's validity is not a date")]
    BadDate,
}

impl CertificateInfo {
    /// Reads the first certificate of a PEM text.
    pub fn from_pem(pem: &str) -> Result<Self, UnreadableCertificate> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| UnreadableCertificate::NoPem)?;
        Self::from_der(&der)
    }

    /// Reads a certificate in DER form.
    pub fn from_der(der: &[u8]) -> Result<Self, UnreadableCertificate> {
        let (_, parsed) =
            X509Certificate::from_der(der).map_err(|_| UnreadableCertificate::NotX509)?;
        let subject = parsed.subject();
        Ok(Self {
            subject_cn: first_text(subject.iter_common_name()),
            organizations: subject.iter_organization().filter_map(text).collect(),
            serial: hex(parsed.raw_serial()),
            fingerprint: hex(&sha256(der)),
            not_before: timestamp(parsed.validity().not_before)?,
            not_after: timestamp(parsed.validity().not_after)?,
            sans: alternative_names(&parsed),
            issuer_cn: first_text(parsed.issuer().iter_common_name()),
            is_ca: parsed.is_ca(),
        })
    }

    /// Returns the remaining validity; negative once the certificate has expired.
    pub fn expires_in(&self, now: Timestamp) -> SignedDuration {
        self.not_after.duration_since(now)
    }

    /// From begin to end of validity.
    pub fn lifetime(&self) -> SignedDuration {
        self.not_after.duration_since(self.not_before)
    }

    /// True after two thirds of the validity: renewal is due, with a third left to repair a failed
    /// one.
    pub fn renew_due(&self, now: Timestamp) -> bool {
        self.expires_in(now) <= self.lifetime() / 3
    }

    /// True if it has expired.
    pub fn is_expired(&self, now: Timestamp) -> bool {
        self.not_after < now
    }
}

fn text(attribute: &AttributeTypeAndValue<'_>) -> Option<String> {
    attribute.as_str().ok().map(str::to_owned)
}

fn first_text<'a>(mut found: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>) -> String {
    found.find_map(text).unwrap_or_default()
}

fn timestamp(time: ASN1Time) -> Result<Timestamp, UnreadableCertificate> {
    Timestamp::from_second(time.timestamp()).map_err(|_| UnreadableCertificate::BadDate)
}

fn alternative_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(extension)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    extension
        .value
        .general_names
        .iter()
        .filter_map(host_name)
        .collect()
}

fn host_name(name: &GeneralName<'_>) -> Option<String> {
    match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        GeneralName::IPAddress(octets) => ip_address(octets).map(|ip| ip.to_string()),
        _ => None,
    }
}

fn ip_address(octets: &[u8]) -> Option<IpAddr> {
    <[u8; 4]>::try_from(octets)
        .map(IpAddr::from)
        .or_else(|_| <[u8; 16]>::try_from(octets).map(IpAddr::from))
        .ok()
}
