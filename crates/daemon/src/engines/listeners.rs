//! The listeners: bound sockets and the limits on connections to them.

use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{BuildError, Startup};
use crate::config::{Config, Span};
use crate::connection::{ConnectionLimits, Connections};
use crate::handover::HandedSocket;
use crate::listener::SocketFile;
use crate::listener::bind::Sockets;

pub const RESTART_KEYS: &[&str] = &["listen", "pods_listen", "compatibility.aurae_socket"];

/// File descriptors kept free for files when the process's limit bounds the connections.
const SPARE_FILE_DESCRIPTORS: usize = 128;

/// `[limits]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    pub connections: NonZeroUsize,
    pub connections_per_client: NonZeroUsize,
    pub handshake_timeout: Span,
    /// The time until a request is complete.
    pub request_timeout: Span,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            connections: NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN),
            connections_per_client: NonZeroUsize::new(256).unwrap_or(NonZeroUsize::MIN),
            handshake_timeout: Span(Duration::from_secs(10)),
            request_timeout: Span(Duration::from_secs(30)),
        }
    }
}

/// The bound sockets of the node and the connections to them.
#[derive(Debug)]
pub struct Listeners {
    /// Taken when the node begins to serve.
    sockets: Mutex<Option<Sockets>>,
    pub connections: Arc<Connections>,
    pub listen: SocketAddr,
    pub pods_listen: Option<SocketAddr>,
    pub socket: PathBuf,
    /// The socket for clients of Aurae, if the daemon created it.
    pub aurae_socket: Option<SocketFile>,
    /// Taken when another daemon is to serve the sockets, dropped when nobody is.
    handed: Mutex<Option<Vec<HandedSocket>>>,
    /// The socket files stay for the daemon that replaces this one.
    keeps_files: AtomicBool,
}

impl Listeners {
    pub fn take_sockets(&self) -> Option<Sockets> {
        let mut sockets = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        sockets.take()
    }

    /// Returns the sockets for the daemon that replaces this one; their files stay.
    pub fn hand_over(&self) -> Vec<HandedSocket> {
        self.keeps_files.store(true, Ordering::Relaxed);
        self.take_handed().unwrap_or_default()
    }

    /// Lets the sockets close when their last connection has been accepted.
    pub fn close(&self) {
        drop(self.take_handed());
    }

    fn take_handed(&self) -> Option<Vec<HandedSocket>> {
        let mut handed = self.handed.lock().unwrap_or_else(PoisonError::into_inner);
        handed.take()
    }
}

pub async fn build(startup: Startup<'_>) -> Result<Listeners, BuildError> {
    let socket = startup.state.socket();
    let mut sockets = Sockets::bind(startup.config, &socket).await?;
    let listen = sockets.tls.local_addr()?;
    let pods = sockets.pods.as_ref();
    let pods_listen = pods.map(tokio::net::TcpListener::local_addr).transpose()?;
    let aurae_socket = sockets.aurae_file.take();
    let handed = std::mem::take(&mut sockets.handed);
    Ok(Listeners {
        sockets: Mutex::new(Some(sockets)),
        connections: Connections::new(limits(startup.config)),
        listen,
        pods_listen,
        socket,
        aurae_socket,
        handed: Mutex::new(Some(handed)),
        keeps_files: AtomicBool::new(false),
    })
}

pub fn reload(listeners: &Listeners, _: &Config, new: &Config) {
    listeners.connections.set_limits(limits(new));
}

pub async fn stop(listeners: &Listeners) {
    if listeners.keeps_files.load(Ordering::Relaxed) {
        return;
    }
    // Another program may have removed it already.
    let _ = std::fs::remove_file(&listeners.socket);
    if let Some(file) = &listeners.aurae_socket {
        file.remove();
    }
}

/// Raises the limit on file descriptors as far as allowed and bounds the connections by it.
fn limits(config: &Config) -> ConnectionLimits {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            ..limit
        },
    )
    .is_ok();
    let available = if raised { limit.maximum } else { limit.current };
    let section = &config.settings.limits;
    let mut connections = section.connections.get();
    if let Some(available) = available.and_then(|available| usize::try_from(available).ok()) {
        connections = connections
            .min(available.saturating_sub(SPARE_FILE_DESCRIPTORS))
            .max(1);
    }
    ConnectionLimits {
        connections,
        connections_per_client: section.connections_per_client.get(),
        handshake_timeout: section.handshake_timeout.0,
        request_timeout: section.request_timeout.0,
    }
}
