//! The node's identity: its certificates, the names they carry and the revoked serial numbers.

mod client_file;
mod endpoint;
mod renewal;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use arc_swap::ArcSwap;
use mainstay_identity::tls::{ServerTls, TlsError, client_config};
use mainstay_identity::{CertifiedNode, NodeNames, PkiDir, PkiError};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tracing::warn;

use super::{BuildError, Startup};
use crate::config::{CertificateName, Config, Serial, SocketPath};
pub use renewal::Renewal;

pub const RESTART_KEYS: &[&str] = &[];

/// The server name that clients of Aurae verify.
const AURAE_SERVER_NAME: &str = "server.unsafe.aurae.io";

/// `[identity]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdentitySection {
    /// Serial numbers of certificates that are no longer accepted.
    pub revoked: BTreeSet<Serial>,
}

/// `[compatibility]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CompatibilitySection {
    /// Whether the certificate also carries the server name that clients of Aurae verify.
    pub aurae: bool,
    /// The path of a unix socket that serves TLS; implies that server name.
    pub aurae_socket: Option<SocketPath>,
}

/// The serial numbers in force; clones share them.
pub type Revoked = Arc<ArcSwap<BTreeSet<Serial>>>;

/// The certificates the node started with and what keeps them valid.
#[derive(Debug)]
pub struct Identity {
    pub pki: PkiDir,
    pub tls: ServerTls,
    /// The certificate at start; renewal replaces it in `tls`.
    pub certificate: CertifiedNode,
    /// Whether this start created the certificate authority.
    pub created_ca: bool,
    pub revoked: Revoked,
    wanted: ArcSwap<WantedNames>,
    /// Signalled when the wanted names may have changed.
    reloaded: Notify,
}

#[derive(Debug, thiserror::Error)]
enum IdentityError {
    #[error("cannot set up the node's identity")]
    Pki(#[source] PkiError),
    #[error("cannot set up TLS")]
    Tls(#[source] TlsError),
}

pub async fn build(startup: Startup<'_>) -> Result<Identity, BuildError> {
    let pki = PkiDir::new(startup.state.pki());
    let wanted = WantedNames::of(startup.config);
    let ensured = pki
        .ensure(&wanted.resolve(), jiff::Timestamp::now())
        .map_err(IdentityError::Pki)?;
    if let Some(warning) = &ensured.warning {
        warn!("{warning}");
    }
    let tls = ServerTls::new(&ensured.node).map_err(IdentityError::Tls)?;
    let revoked = startup.config.settings.identity.revoked.clone();
    Ok(Identity {
        pki,
        tls,
        certificate: ensured.node,
        created_ca: ensured.created_ca,
        revoked: Arc::new(ArcSwap::from_pointee(revoked)),
        wanted: ArcSwap::from_pointee(wanted),
        reloaded: Notify::new(),
    })
}

/// Revocations hold from the next call on, also on open connections.
pub fn reload(identity: &Identity, _: &Config, new: &Config) {
    let revoked = new.settings.identity.revoked.clone();
    identity.revoked.store(Arc::new(revoked));
    identity.wanted.store(Arc::new(WantedNames::of(new)));
    identity.reloaded.notify_one();
}

pub async fn stop(_: &Identity) {}

/// Returns the TLS configuration for connections to other nodes: this node's certificate, and
/// trust in its own authority only.
pub fn towards_nodes(node: &CertifiedNode) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    client_config(&node.ca, Some((&node.cert, &node.key)))
}

/// The names and addresses for the node certificate that the configuration asks for.
#[derive(Debug)]
struct WantedNames {
    names: Vec<CertificateName>,
    listen: IpAddr,
}

impl WantedNames {
    fn of(config: &Config) -> Self {
        let settings = &config.settings;
        let mut names = settings.names.clone();
        let compatibility = &settings.compatibility;
        if compatibility.aurae || compatibility.aurae_socket.is_some() {
            names.push(CertificateName::Dns(AURAE_SERVER_NAME.to_owned()));
        }
        Self {
            names,
            listen: settings.listen.ip(),
        }
    }

    /// Adds the machine's own names and addresses as they are now.
    fn resolve(&self) -> NodeNames {
        let hostname = mainstay_node::hostname();
        let mut dns = vec![hostname.clone(), "localhost".to_owned()];
        let mut ips = mainstay_node::own_addresses();
        for name in &self.names {
            match name {
                CertificateName::Dns(name) => dns.push(name.clone()),
                CertificateName::Ip(ip) => ips.push(*ip),
            }
        }
        if !self.listen.is_unspecified() {
            ips.push(self.listen);
        }
        dns.sort_unstable();
        dns.dedup();
        ips.sort_unstable();
        ips.dedup();
        NodeNames {
            common_name: hostname,
            dns,
            ips,
        }
    }
}
