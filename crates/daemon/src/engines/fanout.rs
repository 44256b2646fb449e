//! The fan-out engine: calls forwarded to other nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use mainstay_fanout::{Fanout, Settings, Targets};
use mainstay_identity::Role;
use serde::{Deserialize, Serialize};

use super::identity::{Identity, towards_nodes};
use super::listeners::Listeners;
use super::{BuildError, Startup};
use crate::call::{AssertedRoles, LocalRoutes};
use crate::config::{Config, DEFAULT_LISTEN, ForwardingTargets, MaxRole, Peer, PeerName, Span};

pub const RESTART_KEYS: &[&str] = &[];

/// `[fleet]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetSection {
    /// False is the same as `forwarding.targets = "off"`.
    pub forwarding: bool,
    /// The port of nodes named without one.
    pub port: NonZeroU16,
    pub connect_timeout: Span,
    /// Bounds the wait for a node when the caller sets no deadline.
    pub answer_timeout: Span,
}

/// `[forwarding]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ForwardingSection {
    /// The nodes that calls are forwarded to.
    pub targets: ForwardingTargets,
    /// The highest role that nodes may assert here, unless their entry in `[peers]` has another.
    pub max_role: MaxRole,
}

/// `[peers]`: other nodes by name.
pub type PeersSection = BTreeMap<PeerName, Peer>;

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

impl Default for ForwardingSection {
    fn default() -> Self {
        Self {
            targets: ForwardingTargets::default(),
            max_role: MaxRole(Role::Admin),
        }
    }
}

/// Forwards calls to other nodes and answers for this one.
#[derive(Debug)]
pub struct Forwarding {
    pub fanout: Arc<Fanout>,
    /// The services of this node, once they are there.
    pub local: LocalRoutes,
    /// The roles that other nodes may assert here.
    pub asserted: Arc<ArcSwap<AssertedRoles>>,
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
        asserted: Arc::new(ArcSwap::from_pointee(asserted(startup.config))),
        own_address,
    })
}

pub fn reload(forwarding: &Forwarding, _: &Config, new: &Config) {
    let settings = settings(new, forwarding.own_address);
    forwarding.fanout.set_settings(settings);
    forwarding.asserted.store(Arc::new(asserted(new)));
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
        targets: if fleet.forwarding {
            settings.forwarding.targets.0
        } else {
            Targets::Off
        },
        port,
        connect_timeout: fleet.connect_timeout.0,
        answer_timeout: fleet.answer_timeout.0,
        peers: peers
            .map(|(name, peer)| (name.0.clone(), peer.address.0.clone().address(port)))
            .collect(),
        revoked: revoked.map(|serial| serial.0.clone()).collect(),
        own_name: mainstay_node::hostname(),
        own_address,
    }
}

fn asserted(config: &Config) -> AssertedRoles {
    let settings = &config.settings;
    let mut asserted = AssertedRoles::new(settings.forwarding.max_role.0);
    for (name, peer) in &settings.peers {
        if let Some(max_role) = peer.max_role {
            asserted.limit(&name.0, &peer.address.0.host, max_role.0);
        }
    }
    asserted
}
