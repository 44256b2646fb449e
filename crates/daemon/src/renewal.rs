//! Keeps the node's certificates alive: looks when one is due, and on every reload.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_api::machine::service_state_event::Action;
use mainstay_fanout::Fanout;
use mainstay_identity::tls::{ServerTls, TlsError, client_config};
use mainstay_identity::{CertifiedNode, NodeNames, PkiDir};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::client_file::{self, Wanted};
use crate::config::{CertificateName, Config};
use crate::events::DaemonEvents;

/// The clock may be set while we wait, so we look at it at least this often.
const LOOK_EVERY: Duration = Duration::from_secs(12 * 60 * 60);

/// Everything that is needed to look after the certificates.
#[derive(Debug)]
pub struct Certificates {
    pub pki: PkiDir,
    pub client_file: PathBuf,
    pub endpoint: String,
    pub tls: ServerTls,
    /// Shows the certificate to other nodes.
    pub fanout: Arc<Fanout>,
    pub events: DaemonEvents,
    /// Fingerprint of the node certificate that connections get to see.
    pub in_use: Mutex<String>,
}

/// The names a client may call this node by.
pub fn node_names(config: &Config) -> NodeNames {
    let hostname = mainstay_node::hostname();
    let mut dns = vec![hostname.clone(), "localhost".to_owned()];
    let mut ips = mainstay_node::own_addresses();
    for name in &config.names {
        match name {
            CertificateName::Dns(name) => dns.push(name.clone()),
            CertificateName::Ip(ip) => ips.push(*ip),
        }
    }
    if !config.listen.ip().is_unspecified() {
        ips.push(config.listen.ip());
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

impl Certificates {
    /// One look: renews what is due. Blocks.
    pub fn look(&self, names: &NodeNames) {
        let now = jiff::Timestamp::now();
        let node = match self.pki.ensure(names, now) {
            Ok(ensured) => {
                if let Some(warning) = ensured.warning {
                    warn!("{warning}");
                }
                self.take_up(&ensured.node, ensured.renewed.as_deref());
                ensured.node
            }
            Err(why) => {
                error!(error = %why, "the node certificate could not be looked after");
                return;
            }
        };
        match self.ensure_client_file(&node, now) {
            Ok(true) => info!(file = %self.client_file.display(), "client configuration renewed"),
            Ok(false) => {}
            Err(why) => error!(error = %why, "the client configuration could not be renewed"),
        }
    }

    /// `Ok(true)` when the file was written. Without the CA's key there is none to write.
    pub fn ensure_client_file(
        &self,
        node: &CertifiedNode,
        now: jiff::Timestamp,
    ) -> Result<bool, client_file::ClientFileError> {
        let Ok(authority) = self.pki.authority() else {
            return Ok(false);
        };
        let context = mainstay_node::hostname();
        let wanted = Wanted {
            context: &context,
            endpoint: &self.endpoint,
            ca_pem: &node.ca,
        };
        client_file::ensure(&self.client_file, &authority, &wanted, now)
    }

    fn use_certificate(&self, node: &CertifiedNode) -> Result<(), TlsError> {
        let towards_nodes = towards_nodes(node)?;
        self.tls.replace(node)?;
        self.fanout.set_tls(towards_nodes);
        Ok(())
    }

    /// Uses the certificate that is on disk now, whoever put it there.
    fn take_up(&self, node: &CertifiedNode, reason: Option<&str>) {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if *in_use == node.info.fingerprint {
            return;
        }
        if let Err(why) = self.use_certificate(node) {
            error!(error = %why, "the renewed certificate cannot be used");
            return;
        }
        in_use.clone_from(&node.info.fingerprint);
        let reason = reason.unwrap_or("replaced on disk");
        let until = node.info.not_after;
        info!(reason, %until, "node certificate renewed");
        let message = format!("node certificate renewed ({reason}), valid until {until}");
        self.events.state(Action::Running, &message);
    }
}

/// How this node connects to others: with its own certificate, to nodes of its own authority.
pub fn towards_nodes(node: &CertifiedNode) -> Result<Arc<rustls::ClientConfig>, TlsError> {
    client_config(&node.ca, Some((&node.cert, &node.key)))
}

/// Looks again whenever a certificate may be due or `reload` is signalled, until `stop`.
pub async fn keep(
    certificates: Arc<Certificates>,
    config: Arc<arc_swap::ArcSwap<Config>>,
    reload: Arc<Notify>,
    stop: CancellationToken,
) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = tokio::time::timeout(LOOK_EVERY, reload.notified()) => {}
        }
        let (certificates, config) = (Arc::clone(&certificates), config.load_full());
        let look =
            tokio::task::spawn_blocking(move || certificates.look(&node_names(&config))).await;
        if look.is_err() {
            error!("looking after the certificates failed");
        }
    }
}
