//! One context: the endpoints of some nodes and the credentials for them.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use crate::private_key::PrivateKeyPem;

/// Endpoints and credentials.
#[derive(Clone, PartialEq, Default)]
pub struct Context {
    /// Addresses to connect to, `host` or `host:port`.
    pub endpoints: Vec<String>,
    /// The default nodes of a command; empty means the endpoint itself.
    pub nodes: Vec<String>,
    /// A local socket to use instead of the endpoints.
    pub socket: Option<PathBuf>,
    /// The authority to verify nodes against, PEM.
    pub ca: Option<String>,
    /// The client's certificate, PEM.
    pub crt: Option<String>,
    /// The client's key.
    pub key: Option<PrivateKeyPem>,
    /// Unknown keys, preserved.
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl Context {
    /// The client's certificate and key, when it has both.
    pub fn identity(&self) -> Option<(&str, &PrivateKeyPem)> {
        self.crt.as_deref().zip(self.key.as_ref())
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Unknown values may be secrets too, so only their keys are shown.
        f.debug_struct("Context")
            .field("endpoints", &self.endpoints)
            .field("nodes", &self.nodes)
            .field("socket", &self.socket)
            .field("ca", &self.ca.is_some())
            .field("crt", &self.crt.is_some())
            .field("key", &self.key)
            .field("extra", &self.extra.keys())
            .finish()
    }
}
