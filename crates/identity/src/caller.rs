//! The identity behind a call, as the listener established it. It must only be built from what
//! was proved (a verified certificate, the kernel's word on a uid), never from request contents.

use std::fmt;

use jiff::Timestamp;

use crate::pki::{CertificateInfo, UnreadableCertificate};
use crate::roles::{NODE_ORGANIZATION, Role};

/// Who is calling.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The certificate's common name, or a name for the local user.
    pub name: String,
    /// The highest role held; none means that nothing in the table is allowed.
    pub role: Option<Role>,
    /// Whether this is a node, which may state the roles of the caller it forwards for.
    pub is_node: bool,
    /// How the identity was proved.
    pub via: Via,
}

/// How a caller proved who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Via {
    /// A client certificate of the node's authority.
    Certificate {
        /// Serial number, hex.
        serial: String,
        /// SHA-256 of the DER form, hex.
        fingerprint: String,
        /// When it ends; a connection may outlive it.
        not_after: Timestamp,
    },
    /// The kernel named the peer of the local socket.
    LocalUser {
        /// The peer's user id.
        uid: u32,
    },
    /// The opt-in listener that serves reads on loopback to anyone.
    LoopbackReadOnly,
}

impl Caller {
    /// The holder of a certificate the TLS layer has already verified. Organizations that are
    /// not roles are ignored: other tools put theirs there too.
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
            },
        })
    }

    /// The peer of the local socket. Root and the user the daemon itself runs as could take
    /// everything anyway, so they are admins; nobody else has a role.
    pub fn from_uid(uid: u32, daemon_uid: u32) -> Self {
        let role = (uid == 0 || uid == daemon_uid).then_some(Role::Admin);
        Self {
            name: format!("uid {uid}"),
            role,
            is_node: false,
            via: Via::LocalUser { uid },
        }
    }

    /// A process inside a cell that got hold of the local socket: whoever it runs as has no role.
    pub fn inside_cell(uid: u32) -> Self {
        Self {
            name: format!("uid {uid} in a cell"),
            role: None,
            is_node: false,
            via: Via::LocalUser { uid },
        }
    }

    /// Anyone who reaches the read-only loopback listener.
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

/// A name from a certificate goes into log lines; a line break in it could forge one.
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
