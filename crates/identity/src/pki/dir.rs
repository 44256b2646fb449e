//! The directory with the node's certificates: created on the first start, checked and repaired on
//! every later one.
//!
//! Files are written in the order ca.key, ca.crt, node.key, node.crt, each atomically. After a crash
//! at any point the next start recovers:
//! - a node certificate or key that is missing, broken or does not fit is issued again;
//! - a missing or broken `ca.crt` is made again from `ca.key`, with the name its certificates
//!   carry as issuer, so they stay valid; a broken file is kept beside it as `ca.crt.damaged`;
//! - a broken `ca.key`, or an authority that is gone while a node certificate exists, is an
//!   error: only a person can tell whether a backup has it.
//!
//! This module never creates a new authority where there may have been one.

use std::path::PathBuf;

use jiff::Timestamp;
use rcgen::KeyPair;

use super::authority::{Authority, CA_TTL, IssuedPem, NODE_TTL, name_of_key};
use super::error::PkiError;
use super::expiry::{day, expiry_phrase};
use super::files::{Files, Name};
use super::info::{CertificateInfo, UnreadableCertificate};
use super::names::NodeNames;
use super::node_check::{Fault, Found, check, signed_by};
use crate::pem::certificates;
use crate::private_key::PrivateKeyPem;

/// The name of new authorities, before the part derived from their key.
const AUTHORITY_NAME: &str = "mainstay";

/// A directory with the certificates of a node.
#[derive(Debug, Clone)]
pub struct PkiDir {
    files: Files,
}

/// The outcome of [`PkiDir::ensure`].
#[derive(Debug, Clone)]
pub struct Ensured {
    /// The certificate to serve with.
    pub node: CertifiedNode,
    /// True if a new authority was created: no client has a certificate yet.
    pub created_ca: bool,
    /// The reason the node certificate was reissued; `None` on a first start.
    pub renewed: Option<String>,
    /// A warning for the operator; the node can serve.
    pub warning: Option<String>,
}

/// The node's certificate, its key and the authority to verify others against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertifiedNode {
    /// The certificate and any intermediates, PEM.
    pub cert: String,
    /// Its key.
    pub key: PrivateKeyPem,
    /// The authority's certificate, PEM.
    pub ca: String,
    /// The fields of the certificate.
    pub info: CertificateInfo,
}

/// The authority in the directory.
struct Standing {
    ca: String,
    info: CertificateInfo,
    /// Present when the key is here, that is, when certificates can be issued.
    authority: Option<Authority>,
    created: bool,
    warning: Option<String>,
}

impl PkiDir {
    /// The certificates in `directory`, which need not exist yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            files: Files::new(directory.into()),
        }
    }

    /// Makes the directory ready to serve with: creates missing files, checks existing ones, renews
    /// what is due. Safe to call from several processes at once.
    pub fn ensure(&self, names: &NodeNames, now: Timestamp) -> Result<Ensured, PkiError> {
        let _lock = self.files.lock()?;
        let standing = self.standing(now)?;
        if standing.info.is_expired(now) {
            let path = self.files.path(Name::CaCert);
            return Err(PkiError::AuthorityExpired {
                path,
                day: day(standing.info.not_after),
            });
        }
        self.ensure_node(standing, names, now)
    }

    /// The authority of this directory, for issuing certificates.
    pub fn authority(&self) -> Result<Authority, PkiError> {
        let key = self.ca_key()?;
        let path = self.files.path(Name::CaKey);
        let key = key.ok_or(PkiError::MissingCaKey { path })?;
        let certificate = self.files.certificate(Name::CaCert)?.unwrap_or_default();
        CertificateInfo::from_pem(&certificate).map_err(|source| self.damaged_ca(source))?;
        self.paired(certificate, key)
    }

    fn standing(&self, now: Timestamp) -> Result<Standing, PkiError> {
        let key = self.ca_key()?;
        let certificate = self.files.certificate(Name::CaCert)?;
        let info = certificate.as_deref().map(CertificateInfo::from_pem);
        match (key, certificate, info) {
            (Some(key), Some(certificate), Some(Ok(_))) => {
                Ok(Standing::issuing(self.paired(certificate, key)?, now))
            }
            (Some(key), certificate, _) => self.remake_ca(key, certificate.is_some(), now),
            (None, Some(ca), Some(Ok(info))) => self.joined(ca, info, now),
            (None, Some(_), Some(Err(source))) => Err(self.damaged_ca(source)),
            (None, _, _) => self.first_start(now),
        }
    }

    fn first_start(&self, now: Timestamp) -> Result<Standing, PkiError> {
        if self.files.exists(Name::NodeCert) || self.files.exists(Name::NodeKey) {
            return Err(PkiError::AuthorityLost {
                path: self.files.path(Name::CaCert),
            });
        }
        let authority = Authority::create_at(AUTHORITY_NAME, CA_TTL, now)?;
        // The key first: a key without a certificate can be completed, not the other way round.
        self.files.write_key(Name::CaKey, &authority.key())?;
        self.files
            .write_certificate(Name::CaCert, authority.certificate())?;
        Ok(Standing {
            created: true,
            ..Standing::issuing(authority, now)
        })
    }

    /// A node that has only the certificate of the authority it joined.
    fn joined(
        &self,
        ca: String,
        info: CertificateInfo,
        now: Timestamp,
    ) -> Result<Standing, PkiError> {
        if !info.is_ca {
            return Err(PkiError::NotAnAuthority {
                path: self.files.path(Name::CaCert),
            });
        }
        let warning = ca_warning(&info, now);
        Ok(Standing {
            ca,
            info,
            authority: None,
            created: false,
            warning,
        })
    }

    /// Recreates `ca.crt` from its key. The name must be the one that issued certificates
    /// carry; the node's own certificate, if readable, proves which that is.
    fn remake_ca(&self, key: KeyPair, damaged: bool, now: Timestamp) -> Result<Standing, PkiError> {
        let node = self.files.certificate(Name::NodeCert)?;
        let node =
            node.and_then(|pem| CertificateInfo::from_pem(&pem).ok().zip(certificates(&pem)));
        let own_name = name_of_key(AUTHORITY_NAME, &key);
        let name = node.as_ref().map_or(&own_name, |(info, _)| &info.issuer_cn);
        let authority = Authority::self_sign(name, key, CA_TTL, now)?;
        if let Some((info, chain)) = &node
            && !signed_by(chain, authority.certificate(), info.not_before)
        {
            return Err(PkiError::CaCertificateLost {
                certificate: self.files.path(Name::CaCert),
                key: self.files.path(Name::CaKey),
                node: self.files.path(Name::NodeCert),
            });
        }
        if damaged {
            self.files.set_aside(Name::CaCert)?;
        }
        self.files
            .write_certificate(Name::CaCert, authority.certificate())?;
        let state = if damaged { "damaged" } else { "missing" };
        let warning = format!("ca.crt was {state} and has been made again from ca.key");
        Ok(Standing {
            warning: Some(warning),
            ..Standing::issuing(authority, now)
        })
    }

    fn ensure_node(
        &self,
        standing: Standing,
        names: &NodeNames,
        now: Timestamp,
    ) -> Result<Ensured, PkiError> {
        let cert = self.files.certificate(Name::NodeCert)?;
        let key = self.files.key(Name::NodeKey)?;
        let found = Found {
            cert: cert.as_deref(),
            key: key.as_ref(),
            ca: &standing.ca,
        };
        let (info, fault) = check(&found, names, now);
        let first = cert.is_none() && key.is_none();
        let Standing {
            ca,
            authority,
            created,
            mut warning,
            ..
        } = standing;

        if let (Some(authority), Some(fault)) = (&authority, &fault) {
            let node = self.issue_node(authority, names, now)?;
            let renewed = (!first).then(|| fault.clone().into_text());
            return Ok(Ensured {
                node,
                created_ca: created,
                renewed,
                warning,
            });
        }
        let refused = |problem| {
            let directory = self.files.directory().to_owned();
            PkiError::NodeCertificate { directory, problem }
        };
        match fault {
            Some(Fault::Unusable(problem)) => return Err(refused(problem)),
            Some(Fault::Wanting(text)) => {
                let text = format!("{text}; without ca.key this node cannot renew it");
                warning = Some(warning.map_or(text.clone(), |first| format!("{first}; {text}")));
            }
            None => {}
        }
        let (Some(cert), Some(key), Some(info)) = (cert, key, info) else {
            return Err(refused("node.crt or node.key is missing".to_owned()));
        };
        let node = CertifiedNode {
            cert,
            key,
            ca,
            info,
        };
        Ok(Ensured {
            node,
            created_ca: created,
            renewed: None,
            warning,
        })
    }

    fn issue_node(
        &self,
        authority: &Authority,
        names: &NodeNames,
        now: Timestamp,
    ) -> Result<CertifiedNode, PkiError> {
        let IssuedPem {
            cert,
            key,
            ca,
            info,
        } = authority.issue_node_at(names, NODE_TTL, now)?;
        // Between the two writes key and certificate differ; the next start would issue again.
        self.files.write_key(Name::NodeKey, &key)?;
        self.files.write_certificate(Name::NodeCert, &cert)?;
        Ok(CertifiedNode {
            cert,
            key,
            ca,
            info,
        })
    }

    fn ca_key(&self) -> Result<Option<KeyPair>, PkiError> {
        let Some(key) = self.files.key(Name::CaKey)? else {
            return Ok(None);
        };
        KeyPair::from_pem(key.expose())
            .map(Some)
            .map_err(|_| PkiError::DamagedCaKey {
                path: self.files.path(Name::CaKey),
            })
    }

    fn paired(&self, certificate: String, key: KeyPair) -> Result<Authority, PkiError> {
        let authority = Authority::from_parts(certificate, key).map_err(|error| match error {
            PkiError::PairMismatch => PkiError::CaKeyMismatch {
                key: self.files.path(Name::CaKey),
                certificate: self.files.path(Name::CaCert),
            },
            other => other,
        })?;
        if !authority.info().is_ca {
            return Err(PkiError::NotAnAuthority {
                path: self.files.path(Name::CaCert),
            });
        }
        Ok(authority)
    }

    fn damaged_ca(&self, source: UnreadableCertificate) -> PkiError {
        PkiError::DamagedCaCertificate {
            path: self.files.path(Name::CaCert),
            source,
        }
    }
}

impl Standing {
    fn issuing(authority: Authority, now: Timestamp) -> Self {
        let info = authority.info().clone();
        let warning = ca_warning(&info, now);
        let ca = authority.certificate().to_owned();
        Self {
            ca,
            info,
            authority: Some(authority),
            created: false,
            warning,
        }
    }
}

fn ca_warning(info: &CertificateInfo, now: Timestamp) -> Option<String> {
    if now < info.not_before {
        return Some(format!(
            "ca.crt is not valid before {}, so nobody will accept this node's certificate; check \
             the clock of this machine",
            day(info.not_before)
        ));
    }
    expiry_phrase(info, now).map(|phrase| format!("ca.crt {phrase}"))
}
