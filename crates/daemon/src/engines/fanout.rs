//! The fan-out engine: calls forwarded to other nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use mainstay_fanout::{Fanout, Settings};
use serde::{Deserialize, Serialize};

use super::identity::{Identity, towards_nodes};
use super::listeners::Listeners;
use super::{BuildError, Startup};
use crate::call::LocalRoutes;
use crate::config::{Config, DEFAULT_LISTEN, PeerAddress, PeerName, Span};

pub const RESTART_KEYS: &[&str] = &[];

/// `[fleet]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetSection {
    /// Whether calls for other nodes are forwarded to them.
    pub forwarding: bool,
    /// The port of nodes named without one.
    pub port: NonZeroU16,
    pub connect_timeout: Span,
    /// Bounds the wait for a node when the caller sets no deadline.
    pub answer_timeout: Span,
}

/// `[peers]`: addresses of nodes by name.
pub type PeersSection = BTreeMap<PeerName, PeerAddress>;

impl Default for FleetSection {
    fn default() -> Self {
        Self {
            forwarding: true,
            port: NonZeroU16::new(DEFAULT_LISTEN.port()).unwrap_or(NonZeroU16::MIN),
            connect_timeout: Span(Duration::from_secs(2)),
            answer_timeout: Span(Duration::from_secs(30)),
        }
    }
}

/// Forwards calls to other nodes and answers for this one.
#[derive(Debug)]
pub struct Forwarding {
    pub fanout: Arc<Fanout>,
    /// The services of this node, once they are there.
    pub local: LocalRoutes,
    own_address: SocketAddr,
}

pub async fn build(
    startup: Startup<'_>,
    identity: &Identity,
    listeners: &Listeners,
) -> Result<Forwarding, BuildError> {
    let own_address = listeners.listen;
    let local = LocalRoutes::default();
    let fanout = Fanout::new(
        settings(startup.config, own_address),
        towards_nodes(&identity.certificate)?,
        mainstay_api::FILE_DESCRIPTOR_SET,
        mainstay_node::own_addresses,
        local.answerer(),
    );
    Ok(Forwarding {
        fanout: Arc::new(fanout),
        local,
        own_address,
    })
}

pub fn reload(forwarding: &Forwarding, _: &Config, new: &Config) {
    let settings = settings(new, forwarding.own_address);
    forwarding.fanout.set_settings(settings);
}

pub async fn stop(forwarding: &Forwarding) {
    forwarding.local.clear();
}

fn settings(config: &Config, own_address: SocketAddr) -> Settings {
    let settings = &config.settings;
    let fleet = &settings.fleet;
    let port = fleet.port.get();
    let peers = settings.peers.iter();
    let revoked = settings.identity.revoked.iter();
    Settings {
        forwarding: fleet.forwarding,
        port,
        connect_timeout: fleet.connect_timeout.0,
        answer_timeout: fleet.answer_timeout.0,
        peers: peers
            .map(|(name, peer)| (name.0.clone(), peer.0.clone().address(port)))
            .collect(),
        revoked: revoked.map(|serial| serial.0.clone()).collect(),
        own_name: mainstay_node::hostname(),
        own_address,
    }
}
