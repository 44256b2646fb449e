//! The daemon from start to stop: it builds the engines, serves, reloads, and stops in order.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_api::machine::service_state_event::Action;
use mainstay_error_chain::chain;
use mainstay_node::mounts::SpaceSurvey;
use tracing::{error, info, warn};

use crate::call::Gate;
use crate::config::{Config, Overrides, RunningConfig};
use crate::engines::identity::Renewal;
use crate::engines::{BuildError, Engines, Startup};
use crate::listener::Server;
use crate::node::{Build, Node};
use crate::service_manager::{NotifyState, notify};
use crate::services::{self, Health};
use crate::signals::{Signalled, Signals};
use crate::state::{StateDir, StateError};
use crate::workloads::Workloads;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Engine(#[from] BuildError),
    #[error("cannot serve the contract by reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("cannot install a signal handler")]
    Signals(#[source] std::io::Error),
}

/// Facts about a daemon that has begun to serve.
#[derive(Debug)]
pub struct Ready {
    pub listen: SocketAddr,
    pub pods_listen: Option<SocketAddr>,
    pub socket: PathBuf,
    /// The socket for clients of Aurae, if the daemon created it.
    pub aurae_socket: Option<PathBuf>,
    pub state: PathBuf,
    /// Missing on a node whose CA key is kept elsewhere.
    pub client_config: Option<PathBuf>,
    pub first_start: bool,
    pub took: Duration,
}

/// Serves until SIGTERM or SIGINT.
pub async fn serve(
    config: Config,
    overrides: Overrides,
    build: Build,
    ready: impl FnOnce(&Ready),
) -> Result<(), ServeError> {
    let began = Instant::now();
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    let state = StateDir::open(&config.state)?;
    let daemon = Daemon::start(config, overrides, build, &state).await?;
    // A client that sees the node ready also finds so in its log.
    daemon.node.engines.journal.daemon_log.flush();
    ready(&daemon.ready(&state, began));
    state.reserve();
    notify(&[NotifyState::Ready]);
    daemon.run(signals).await;
    Ok(())
}

struct Daemon {
    config: Config,
    overrides: Overrides,
    node: Arc<Node>,
    health: Health,
    server: Server,
    has_client_file: bool,
}

impl Daemon {
    async fn start(
        config: Config,
        overrides: Overrides,
        build: Build,
        state: &StateDir,
    ) -> Result<Self, ServeError> {
        let startup = Startup {
            config: &config,
            state,
            build: &build,
        };
        let engines = Engines::build(startup).await?;
        let node = Arc::new(Node {
            build,
            platform: mainstay_node::Platform::detect(Path::new("/")),
            state: state.path().to_owned(),
            config_file: config.file.clone(),
            config: RunningConfig::new(&config),
            space: SpaceSurvey::default(),
            workloads: Workloads::new(&engines),
            engines,
        });
        let (routes, health) = services::routes(&node)?;
        node.engines.fanout.local.set(routes.clone());
        let renewal = Renewal::start(&node, state.client_config()).map_err(BuildError::from)?;
        let has_client_file = renewal.has_client_file();
        let server = Server::new(Gate::new(routes, &node.engines), &node.engines);
        health.set_serving(true).await;
        server.accept_all(&node.engines);
        tokio::spawn(renewal.run(server.stop.clone()));

        let listen = node.engines.listeners.listen;
        info!(%listen, "serving");
        let daemon = Self {
            config,
            overrides,
            node,
            health,
            server,
            has_client_file,
        };
        daemon.publish(Action::Running, &format!("serving on {listen}"));
        Ok(daemon)
    }

    fn publish(&self, action: Action, message: &str) {
        let events = &self.node.engines.journal.service_events;
        events.daemon(action, message);
    }

    fn ready(&self, state: &StateDir, began: Instant) -> Ready {
        let engines = &self.node.engines;
        Ready {
            listen: engines.listeners.listen,
            pods_listen: engines.listeners.pods_listen,
            socket: engines.listeners.socket.clone(),
            aurae_socket: (engines.listeners.aurae_socket.as_ref())
                .map(|file| file.path().to_owned()),
            state: state.path().to_owned(),
            client_config: self.has_client_file.then(|| state.client_config()),
            first_start: engines.identity.created_ca,
            took: began.elapsed(),
        }
    }

    async fn run(mut self, mut signals: Signals) {
        loop {
            match signals.next().await {
                Signalled::Reload => self.reload(),
                Signalled::Stop(signal) => {
                    self.stop(signal, &mut signals).await;
                    return;
                }
            }
        }
    }

    /// Applies what can change while running. A file that is not valid changes nothing.
    fn reload(&mut self) {
        notify(&[NotifyState::Reloading]);
        match Config::load(&self.overrides) {
            Ok(new) => {
                for key in self.config.restart_needed(&new) {
                    warn!(key, "configuration key changed; takes effect on restart");
                }
                self.node.engines.reload(&self.config, &new);
                self.node.config.replace(&new);
                self.config = new;
                info!("configuration reloaded");
                self.publish(Action::Running, "configuration reloaded");
            }
            Err(why) => error!(
                error = chain(&why),
                "cannot reload the configuration; the previous one stays in force"
            ),
        }
        notify(&[NotifyState::Ready]);
    }

    /// Refuses new calls, lets running ones finish, then stops the engines.
    async fn stop(self, signal: &str, signals: &mut Signals) {
        info!(signal, "stopping");
        notify(&[NotifyState::Stopping]);
        self.publish(Action::Stopping, &format!("stopping on {signal}"));
        self.health.set_serving(false).await;
        let stop_timeout = self.config.settings.stop_timeout.0;
        tokio::select! {
            drained = tokio::time::timeout(stop_timeout, self.server.drain()) => {
                if drained.is_err() {
                    let calls = self.server.tracker.len();
                    warn!(calls, "calls still running after the stop timeout");
                }
            }
            name = signals.stop() => warn!(signal = name, "stopping at once"),
        }
        self.server.abort().await;
        info!("stopped");
        self.publish(Action::Finished, "stopped");
        self.node.engines.stop().await;
    }
}
