//! The three roles a caller can have. They are ordered: each may do all that the ones below it
//! may. What a role may call is the table in `rules`, never decided here.

use std::fmt;
use std::str::FromStr;

/// Organization of a node's own certificate. It lets the holder state the roles of a caller it
/// forwards for; by itself it grants nothing.
pub const NODE_ORGANIZATION: &str = "os:node";

/// The role of a caller, lowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Reads, changes nothing.
    Reader,
    /// Also stops, starts and reboots.
    Operator,
    /// Everything, secrets included.
    Admin,
}

impl Role {
    /// Every role, lowest first.
    pub const ALL: [Self; 3] = [Self::Reader, Self::Operator, Self::Admin];

    /// The role as written in the Organization of a certificate.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reader => "os:reader",
            Self::Operator => "os:operator",
            Self::Admin => "os:admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// The error of text that is not the name of a role.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown role {0:?}; the roles are os:reader, os:operator and os:admin")]
pub struct UnknownRole(pub String);

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| UnknownRole(text.to_owned()))
    }
}
