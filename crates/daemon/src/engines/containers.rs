//! The containers engine: drivers for the runtimes of others.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mainstay_containers::Sockets;
use serde::{Deserialize, Serialize};

use super::{BuildError, Startup};
use crate::config::{Config, SocketPath, Span};

pub const RESTART_KEYS: &[&str] = &[];

/// The socket of containerd as distributions install it.
const DEFAULT_CONTAINERD: &str = "/run/containerd/containerd.sock";

/// `[containers]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContainersSection {
    pub containerd: SocketPath,
    /// Defaults to the socket of containerd, which usually serves CRI as well.
    pub cri: Option<SocketPath>,
    pub timeout: Span,
    pub namespaces: BTreeMap<String, SocketPath>,
}

impl Default for ContainersSection {
    fn default() -> Self {
        Self {
            containerd: SocketPath(PathBuf::from(DEFAULT_CONTAINERD)),
            cri: None,
            // Shorter than the default timeout of clients, so that they learn which runtime
            // does not answer.
            timeout: Span(Duration::from_secs(8)),
            namespaces: BTreeMap::new(),
        }
    }
}

impl ContainersSection {
    pub fn sockets(&self) -> Sockets {
        let cri = self.cri.as_ref().unwrap_or(&self.containerd);
        let namespaces = self.namespaces.iter();
        Sockets {
            cri: cri.0.clone(),
            containerd: self.containerd.0.clone(),
            namespaces: namespaces
                .map(|(name, socket)| (name.clone(), socket.0.clone()))
                .collect(),
            timeout: self.timeout.0,
        }
    }
}

/// The drivers in force; a reload replaces them. Clones share them.
#[derive(Debug, Clone)]
pub struct Containers(Arc<ArcSwap<mainstay_containers::Containers>>);

impl Containers {
    pub fn current(&self) -> mainstay_containers::Containers {
        mainstay_containers::Containers::clone(&self.0.load())
    }
}

pub async fn build(startup: Startup<'_>) -> Result<Containers, BuildError> {
    let sockets = startup.config.settings.containers.sockets();
    let engine = mainstay_containers::Containers::new(&sockets);
    Ok(Containers(Arc::new(ArcSwap::from_pointee(engine))))
}

pub fn reload(containers: &Containers, old: &Config, new: &Config) {
    if new.settings.containers != old.settings.containers {
        let sockets = new.settings.containers.sockets();
        let engine = mainstay_containers::Containers::new(&sockets);
        containers.0.store(Arc::new(engine));
    }
}

pub async fn stop(_: &Containers) {}
