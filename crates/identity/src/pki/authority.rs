//! A certificate authority in memory: issues certificates, writes nothing to disk.

use std::fmt;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PKCS_ECDSA_P256_SHA256, PublicKeyData as _, SerialNumber,
};
use rustls::server::ParsedCertificate;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;

use super::error::PkiError;
use super::expiry::day;
use super::info::{CertificateInfo, UnreadableCertificate};
use super::names::{COMMON_NAME_MAX, NodeNames, common_name};
use crate::crypto::{hex, random, sha256};
use crate::private_key::PrivateKeyPem;
use crate::roles::{NODE_ORGANIZATION, Role};

const DAY: u64 = 24 * 60 * 60;

/// The validity of a new authority: ten years.
pub const CA_TTL: Duration = Duration::from_secs(3653 * DAY);
/// The validity of a node certificate: a year, renewed after two thirds of it.
pub const NODE_TTL: Duration = Duration::from_secs(365 * DAY);
/// The default validity of a client certificate: a year.
pub const CLIENT_TTL: Duration = Duration::from_secs(365 * DAY);

/// Certificates begin this long in the past, for peers whose clocks are behind.
const BACKDATED: Duration = Duration::from_secs(5 * 60);

/// A client certificate to be issued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientSpec {
    /// The name of the client; appears in the audit log.
    pub name: String,
    /// The roles wanted. Roles are ordered and each includes those below it, so the certificate
    /// carries the highest alone.
    pub roles: Vec<Role>,
    /// The validity, from now.
    pub ttl: Duration,
}

/// A freshly issued certificate with its key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IssuedPem {
    /// The certificate, PEM.
    pub cert: String,
    /// Its key.
    pub key: PrivateKeyPem,
    /// The certificate of the authority that signed it, PEM.
    pub ca: String,
    /// The fields of the certificate.
    pub info: CertificateInfo,
}

/// An authority with its key, able to issue certificates.
pub struct Authority {
    certificate: String,
    info: CertificateInfo,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a new authority. A part of its key's digest is added to the name, so that two
    /// authorities of the same name differ for people and for TLS.
    pub fn create(name: &str, ttl: Duration) -> Result<Self, PkiError> {
        Self::create_at(name, ttl, Timestamp::now())
    }

    /// As [`Authority::create`], for a given moment.
    pub fn create_at(name: &str, ttl: Duration, now: Timestamp) -> Result<Self, PkiError> {
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let name = name_of_key(name, &key);
        Self::self_sign(&name, key, ttl, now)
    }

    /// Creates the authority's certificate from an existing key. With the same name and key,
    /// everything the key has signed verifies against the new certificate too.
    pub(crate) fn self_sign(
        name: &str,
        key: KeyPair,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<Self, PkiError> {
        let mut params = params(&common_name(name)?, None)?;
        set_validity(&mut params, now, later(now, ttl));
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let certificate = params.self_signed(&key)?.pem();
        Self::from_parts(certificate, key)
    }

    /// The authority of a certificate and key that belong together.
    pub fn from_pem(certificate: &str, key: &PrivateKeyPem) -> Result<Self, PkiError> {
        Self::from_parts(certificate.to_owned(), KeyPair::from_pem(key.expose())?)
    }

    pub(crate) fn from_parts(certificate: String, key: KeyPair) -> Result<Self, PkiError> {
        let info = CertificateInfo::from_pem(&certificate)?;
        if !belongs_to(&certificate, &key)? {
            return Err(PkiError::PairMismatch);
        }
        let issuer = Issuer::from_ca_cert_pem(&certificate, key)?;
        Ok(Self {
            certificate,
            info,
            issuer,
        })
    }

    /// The authority's certificate, PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }

    /// The fields of the authority's certificate.
    pub fn info(&self) -> &CertificateInfo {
        &self.info
    }

    /// The authority's key, for writing it to its file.
    pub fn key(&self) -> PrivateKeyPem {
        PrivateKeyPem::new(self.issuer.key().serialize_pem())
    }

    /// Issues a certificate for a client.
    pub fn issue_client(&self, spec: &ClientSpec) -> Result<IssuedPem, PkiError> {
        self.issue_client_at(spec, Timestamp::now())
    }

    /// As [`Authority::issue_client`], for a given moment.
    pub fn issue_client_at(
        &self,
        spec: &ClientSpec,
        now: Timestamp,
    ) -> Result<IssuedPem, PkiError> {
        let role = spec.roles.iter().max().map(|role| role.as_str());
        let mut params = params(&common_name(&spec.name)?, role)?;
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        self.issue(params, spec.ttl, now)
    }

    /// Issues a certificate for a node: it serves with it and calls other nodes with it.
    pub fn issue_node(&self, names: &NodeNames, ttl: Duration) -> Result<IssuedPem, PkiError> {
        self.issue_node_at(names, ttl, Timestamp::now())
    }

    /// As [`Authority::issue_node`], for a given moment.
    pub fn issue_node_at(
        &self,
        names: &NodeNames,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<IssuedPem, PkiError> {
        let mut params = params(&common_name(&names.common_name)?, Some(NODE_ORGANIZATION))?;
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        params.subject_alt_names = names.alternative_names();
        self.issue(params, ttl, now)
    }

    fn issue(
        &self,
        mut params: CertificateParams,
        ttl: Duration,
        now: Timestamp,
    ) -> Result<IssuedPem, PkiError> {
        if self.info.is_expired(now) {
            return Err(PkiError::IssuerExpired {
                day: day(self.info.not_after),
            });
        }
        // Some peers check the validity of the authority too, so a longer one has no effect.
        set_validity(&mut params, now, later(now, ttl).min(self.info.not_after));
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        let cert = params.signed_by(&key, &self.issuer)?;
        Ok(IssuedPem {
            info: CertificateInfo::from_der(cert.der())?,
            cert: cert.pem(),
            key: PrivateKeyPem::new(key.serialize_pem()),
            ca: self.certificate.clone(),
        })
    }
}

impl fmt::Debug for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authority")
            .field("info", &self.info)
            .finish_non_exhaustive()
    }
}

/// The name of an authority that has this key: the same key always gives the same name.
pub(crate) fn name_of_key(name: &str, key: &KeyPair) -> String {
    let digest = hex(&sha256(&key.subject_public_key_info()));
    let mark: String = digest.chars().take(8).collect();
    let name: String = name
        .chars()
        .take(COMMON_NAME_MAX - mark.len() - 1)
        .collect();
    format!("{name} {mark}")
}

fn belongs_to(certificate: &str, key: &KeyPair) -> Result<bool, PkiError> {
    let der = CertificateDer::from_pem_slice(certificate.as_bytes())
        .map_err(|_| UnreadableCertificate::NoPem)?;
    let parsed = ParsedCertificate::try_from(&der).map_err(|_| UnreadableCertificate::NotX509)?;
    Ok(parsed.subject_public_key_info().as_ref() == key.subject_public_key_info())
}

fn params(name: &str, organization: Option<&str>) -> Result<CertificateParams, PkiError> {
    let mut subject = DistinguishedName::new();
    if let Some(organization) = organization {
        subject.push(DnType::OrganizationName, organization);
    }
    subject.push(DnType::CommonName, name);
    let mut params = CertificateParams::default();
    params.distinguished_name = subject;
    params.serial_number = Some(serial()?);
    Ok(params)
}

/// 128 random bits. Serial numbers are signed integers: the first bit stays clear so that the
/// number is positive, the next is set so that it never has leading zeros.
fn serial() -> Result<SerialNumber, PkiError> {
    let mut bytes = random::<16>().map_err(|_| PkiError::NoRandom)?;
    bytes[0] = (bytes[0] & 0x7f) | 0x40;
    Ok(SerialNumber::from_slice(&bytes))
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, not_after: Timestamp) {
    // A clock before 1970 is wrong; the epoch is used instead.
    let seconds = |at: Timestamp| Duration::from_secs(u64::try_from(at.as_second()).unwrap_or(0));
    let epoch = rcgen::date_time_ymd(1970, 1, 1);
    params.not_before = epoch + seconds(earlier(now, BACKDATED));
    params.not_after = epoch + seconds(not_after);
}

/// A moment moved on by `by`, or back by it, stopping at the ends of the calendar.
fn later(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_add(by).unwrap_or(Timestamp::MAX)
}

fn earlier(at: Timestamp, by: Duration) -> Timestamp {
    at.checked_sub(by).unwrap_or(Timestamp::MIN)
}
