//! Keeps the node's certificates valid: checks them regularly and on every reload.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_api::machine::service_state_event::Action;
use mainstay_error_chain::chain;
use mainstay_identity::CertifiedNode;
use mainstay_identity::tls::TlsError;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use super::client_file::{self, ClientFileError, Wanted};
use super::endpoint::endpoint;
use super::{Identity, towards_nodes};
use crate::node::Node;

/// The clock may be set while the daemon waits, so it never waits longer than this.
const CHECK_INTERVAL: Duration = Duration::from_secs(12 * 60 * 60);

/// Renews certificates and the administrator's client configuration.
#[derive(Debug)]
pub struct Renewal {
    node: Arc<Node>,
    client_file: PathBuf,
    listen: SocketAddr,
    /// Fingerprint of the node certificate that connections are served with.
    in_use: Mutex<String>,
}

impl Renewal {
    /// Ensures the client configuration. An error means that its key may be known to others.
    pub fn start(node: &Arc<Node>, client_file: PathBuf) -> Result<Arc<Self>, ClientFileError> {
        let engines = &node.engines;
        let certificate = &engines.identity.certificate;
        let renewal = Self {
            node: Arc::clone(node),
            client_file,
            listen: engines.listeners.listen,
            in_use: Mutex::new(certificate.info.fingerprint.clone()),
        };
        match renewal.ensure_client_file(certificate, jiff::Timestamp::now()) {
            Err(why) if why.is_permission_problem() => return Err(why),
            // Such as a full disk: there are other ways in, and the next check retries.
            Err(why) => {
                warn!(
                    error = chain(&why),
                    "cannot update the administrator's client configuration"
                );
            }
            Ok(_) => {}
        }
        Ok(Arc::new(renewal))
    }

    /// Checks whenever a certificate may be due or the configuration is reloaded, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        loop {
            let reloaded = self.identity().reloaded.notified();
            tokio::select! {
                () = stop.cancelled() => return,
                _ = tokio::time::timeout(CHECK_INTERVAL, reloaded) => {}
            }
            let renewal = Arc::clone(&self);
            if let Err(why) = tokio::task::spawn_blocking(move || renewal.check()).await {
                error!(error = chain(&why), "checking the certificates failed");
            }
        }
    }

    fn identity(&self) -> &Identity {
        &self.node.engines.identity
    }

    /// Renews what is due. Blocks.
    fn check(&self) {
        let now = jiff::Timestamp::now();
        let names = self.identity().wanted.load().resolve();
        let node = match self.identity().pki.ensure(&names, now) {
            Ok(ensured) => {
                if let Some(warning) = ensured.warning {
                    warn!("{warning}");
                }
                self.replace_certificate(&ensured.node, ensured.renewed.as_deref());
                ensured.node
            }
            Err(why) => {
                error!(error = chain(&why), "cannot check the node certificate");
                return;
            }
        };
        match self.ensure_client_file(&node, now) {
            Ok(true) => info!(file = %self.client_file.display(), "client configuration renewed"),
            Ok(false) => {}
            Err(why) => error!(error = chain(&why), "cannot renew the client configuration"),
        }
    }

    /// Returns whether the file was written. Without the CA's key there is none to write.
    fn ensure_client_file(
        &self,
        node: &CertifiedNode,
        now: jiff::Timestamp,
    ) -> Result<bool, ClientFileError> {
        let Ok(authority) = self.identity().pki.authority() else {
            return Ok(false);
        };
        let context = mainstay_node::hostname();
        let endpoint = endpoint(self.listen, &self.identity().wanted.load().names);
        let wanted = Wanted {
            context: &context,
            endpoint: &endpoint,
            ca_pem: &node.ca,
        };
        client_file::ensure(&self.client_file, &authority, &wanted, now)
    }

    /// Serves with the certificate on disk, whichever program put it there.
    fn replace_certificate(&self, node: &CertifiedNode, reason: Option<&str>) {
        let mut in_use = self.in_use.lock().unwrap_or_else(PoisonError::into_inner);
        if *in_use == node.info.fingerprint {
            return;
        }
        if let Err(why) = self.serve_with(node) {
            error!(error = chain(&why), "cannot use the renewed certificate");
            return;
        }
        in_use.clone_from(&node.info.fingerprint);
        let reason = reason.unwrap_or("replaced on disk");
        let until = node.info.not_after;
        info!(reason, %until, "node certificate renewed");
        let message = format!("node certificate renewed ({reason}), valid until {until}");
        let events = &self.node.engines.journal.service_events;
        events.daemon(Action::Running, &message);
    }

    fn serve_with(&self, node: &CertifiedNode) -> Result<(), TlsError> {
        let towards_nodes = towards_nodes(node)?;
        self.identity().tls.replace(node)?;
        self.node.engines.fanout.fanout.set_tls(towards_nodes);
        Ok(())
    }

    pub fn has_client_file(&self) -> bool {
        self.client_file.exists()
    }
}
