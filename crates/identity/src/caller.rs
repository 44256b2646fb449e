//! The identity of a caller, as the listener established it. It must only be built from proof (a
//! verified certificate, the UID reported by the kernel), never from request contents.

use std::fmt;

use jiff::Timestamp;

use crate::pki::{CertificateInfo, UnreadableCertificate};
use crate::roles::{NODE_ORGANIZATION, Role};

/// The identity of a caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The certificate's common name, or a name for the local user.
    pub name: String,
    /// The highest role held; none means that nothing in the table is allowed.
    pub role: Option<Role>,
    /// True for a node, which may state the role of the caller it forwards for.
    pub is_node: bool,
    /// The proof of the identity.
    pub via: Via,
}

/// The proof of an identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// A client certificate of the node's authority.
    Certificate {
        /// Serial number, hex.
        serial: String,
        /// SHA-256 of the DER form, hex.
        fingerprint: String,
        /// Its expiry; a connection may outlive it.
        not_after: Timestamp,
        /// Its DNS names and IP addresses.
        names: Vec<String>,
    },
    /// The credentials of the peer of the unix socket, from the kernel.
    LocalUser {
        /// The peer's UID.
        uid: u32,
    },
    /// None: the opt-in read-only listener on loopback.
    LoopbackReadOnly,
}

impl Caller {
    /// Creates the caller of a certificate that the TLS layer has verified. Organizations that are
    /// not roles are ignored: other tools use the field too.
    pub fn from_certificate(der: &[u8]) -> Result<Self, UnreadableCertificate> {
        let info = CertificateInfo::from_der(der)?;
        let role = info
            .organizations
            .iter()
            .filter_map(|name| name.parse().ok())
            .max();
        let is_node = info
            .organizations
            .iter()
            .any(|name| name == NODE_ORGANIZATION);
        Ok(Self {
            name: printable(&info.subject_cn),
            role,
            is_node,
            via: Via::Certificate {
                serial: info.serial,
                fingerprint: info.fingerprint,
                not_after: info.not_after,
                names: info.sans,
            },
        })
    }

    /// Creates the caller of the unix socket. Root and the daemon's own user have full access
    /// anyway, so they are admins; no other user has a role.
    pub fn from_uid(uid: u32, daemon_uid: u32) -> Self {
        let role = (uid == 0 || uid == daemon_uid).then_some(Role::Admin);
        Self {
            name: format!("uid {uid}"),
            role,
            is_node: false,
            via: Via::LocalUser { uid },
        }
    }

    /// Creates the caller of the unix socket for a process inside a cell, which has no role
    /// whatever its UID.
    pub fn inside_cell(uid: u32) -> Self {
        Self {
            name: format!("uid {uid} in a cell"),
            role: None,
            is_node: false,
            via: Via::LocalUser { uid },
        }
    }

    /// Creates the caller of the read-only loopback listener.
    pub fn loopback_read_only() -> Self {
        Self {
            name: "loopback".to_owned(),
            role: Some(Role::Reader),
            is_node: false,
            via: Via::LoopbackReadOnly,
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let standing = match self.role {
            Some(role) => role.as_str(),
            None if self.is_node => NODE_ORGANIZATION,
            None => "no role",
        };
        write!(f, "{} ({standing})", self.name)
    }
}

/// Removes control characters from a name: a newline in it could forge a log line.
fn printable(name: &str) -> String {
    let clean: String = name
        .chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect();
    if clean.is_empty() {
        "unnamed".to_owned()
    } else {
        clean
    }
}
