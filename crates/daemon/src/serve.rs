//! The daemon from start to stop: it builds the engines, serves, reloads, and stops in order.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mainstay_api::machine::service_state_event::Action;
use mainstay_error_chain::chain;
use mainstay_node::mounts::SpaceSurvey;
use mainstay_slots::{Outcome, TrialChannel};
use tracing::{error, info, warn};

use crate::call::Gate;
use crate::config::{Config, Overrides, RunningConfig};
use crate::configuration::{self, Changes};
use crate::engines::identity::Renewal;
use crate::engines::lifecycle::reset::{self, WipeError, Wiped};
use crate::engines::{BuildError, Engines, Startup};
use crate::handover::{End, Ends, Process, Replacement};
use crate::listener::Server;
use crate::node::{Build, Node};
use crate::service_manager::{NotifyState, notify, notify_change};
use crate::services::{self, Health};
use crate::signals::{Signalled, Signals};
use crate::state::{StateDir, StateError};
use crate::trial;
use crate::workloads::Workloads;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Engine(#[from] BuildError),
    #[error("cannot finish the reset of this node")]
    Wipe(#[from] WipeError),
    #[error("cannot serve the contract by reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("cannot install a signal handler")]
    Signals(#[source] std::io::Error),
}

/// How a daemon has ended.
#[derive(Debug)]
#[must_use]
pub enum Ended {
    /// The process is to exit with 0.
    Stopped,
    /// The process is to execute another binary in place.
    Replaced(Replacement),
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

/// Serves until SIGTERM or SIGINT, or until a sequence ends the daemon. `notices` are about the start
/// of this binary rather than another.
pub async fn serve(
    config: Config,
    overrides: Overrides,
    build: Build,
    notices: &[String],
    ready: impl FnOnce(&Ready),
) -> Result<Ended, ServeError> {
    let began = Instant::now();
    let signals = Signals::listen().map_err(ServeError::Signals)?;
    let state = StateDir::open(&config.state)?;
    let wiped = reset::follow_order(state.path())?;
    let (process, ends) = Process::new();
    let daemon = Daemon::start(config, overrides, build, &state, &process).await?;
    if let Some(wiped) = &wiped {
        daemon.report(wiped);
    }
    for notice in notices {
        warn!(notice, "start");
    }
    let trial = TrialChannel::take();
    if trial.is_none() {
        daemon.report_switch().await;
    }
    // A client that sees the node ready also finds so in its log.
    daemon.node.engines.journal.daemon_log.flush();
    ready(&daemon.ready(&state, began));
    state.reserve();
    notify(&[NotifyState::Ready]);
    let node = Arc::clone(&daemon.node);
    // Not before the node serves: the events of the sequence have readers then.
    match trial {
        // The sequence that asked for the trial ends when it has ended.
        Some(channel) => tokio::spawn(trial::run(channel, node, process)),
        None => tokio::spawn(async move { node.engines.lifecycle.resume().await }),
    };
    let ended = daemon.run(signals, ends).await;
    // The next daemon takes its lock.
    drop(state);
    Ok(ended)
}

/// The end of the wait for running calls.
enum Stopped {
    Drained,
    BySignal,
}

/// Bounds the wait for the last events of a sequence that ends the daemon.
const LAST_EVENTS_TIMEOUT: Duration = Duration::from_secs(5);
/// Bounds the end of the shims of all cells at a shutdown.
const SHIMS_TIMEOUT: Duration = Duration::from_secs(10);

struct Daemon {
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
        process: &Process,
    ) -> Result<Self, ServeError> {
        let startup = Startup {
            config: &config,
            state,
            build: &build,
            process,
        };
        let engines = Engines::build(startup).await?;
        let node = Arc::new(Node {
            build,
            state: state.path().to_owned(),
            config: RunningConfig::new(&config),
            changes: Changes::new(overrides),
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

    /// Reports what a reset has wiped before this daemon opened its state.
    fn report(&self, wiped: &Wiped) {
        let actor = &wiped.actor;
        for entry in &wiped.entries {
            info!(%actor, %entry, "wiped by a reset");
        }
        let entries: Vec<String> = wiped.entries.iter().map(ToString::to_string).collect();
        let message = format!("reset of actor {actor} wiped {}", entries.join(", "));
        self.publish(Action::Running, &message);
    }

    /// Reports how the last upgrade or rollback has ended, once.
    async fn report_switch(&self) {
        let slots = self.node.engines.upgrade.slots.clone();
        let events = self.node.engines.journal.service_events.clone();
        let reported = tokio::task::spawn_blocking(move || {
            let Some(switch) = slots.unreported()? else {
                return Ok(());
            };
            let (kind, from, to) = (switch.trial.kind, &switch.from, &switch.to);
            match &switch.outcome {
                Outcome::Kept => {
                    info!(%kind, from, to, "new version confirmed");
                    events.daemon(
                        Action::Running,
                        &format!("{kind} from {from} to {to} confirmed"),
                    );
                }
                Outcome::Returned { reason } => {
                    error!(%kind, from, to, reason, "new version failed; the node has returned");
                    let text = format!("{kind} to {to} failed, {from} runs again: {reason}");
                    events.daemon(Action::Running, &text);
                }
            }
            slots.mark_reported()
        });
        if let Ok(Err(why)) = reported.await {
            error!(error = chain(&why), "cannot report the last upgrade");
        }
    }

    async fn run(self, mut signals: Signals, mut ends: Ends) -> Ended {
        loop {
            let end = tokio::select! {
                signalled = signals.next() => match signalled {
                    Signalled::Reload => {
                        // A stop must not wait for a slow disk.
                        tokio::spawn(configuration::reload(Arc::clone(&self.node)));
                        continue;
                    }
                    Signalled::Stop(signal) => {
                        self.node.engines.listeners.close();
                        self.stop(signal, NotifyState::Stopping, &mut signals).await;
                        return Ended::Stopped;
                    }
                },
                end = ends.next() => end,
            };
            match end {
                End::Exit => {
                    // Its last events are still to be published.
                    let idle = self.node.engines.lifecycle.sequences.until_idle();
                    let _ = tokio::time::timeout(LAST_EVENTS_TIMEOUT, idle).await;
                    self.node.engines.listeners.close();
                    // Nothing runs any more: without their shims nothing of the node is left.
                    let engines = &self.node.engines;
                    for cells in [&engines.cells, engines.services.cells()] {
                        let ended = cells.end_idle_shims();
                        let _ = tokio::time::timeout(SHIMS_TIMEOUT, ended).await;
                    }
                    self.stop("shutdown", NotifyState::Stopping, &mut signals)
                        .await;
                    return Ended::Stopped;
                }
                End::Release => {
                    drop(self.node.engines.listeners.hand_over());
                    self.stop("end of the trial", NotifyState::Reloading, &mut signals)
                        .await;
                    return Ended::Stopped;
                }
                End::Replace(program) => {
                    let sockets = self.node.engines.listeners.hand_over();
                    let stopped = self.stop("restart", NotifyState::Reloading, &mut signals);
                    // A signal to stop counts more than the restart that it interrupts.
                    return match stopped.await {
                        Stopped::Drained => Ended::Replaced(Replacement { program, sockets }),
                        Stopped::BySignal => Ended::Stopped,
                    };
                }
            }
        }
    }

    /// Refuses new calls, lets running ones finish, then stops the engines.
    async fn stop(self, reason: &str, state: NotifyState<'_>, signals: &mut Signals) -> Stopped {
        info!(reason, "stopping");
        notify_change(state);
        self.node.engines.lifecycle.sequences.close();
        self.publish(Action::Stopping, &format!("stopping on {reason}"));
        let mut stopped = Stopped::Drained;
        self.health.set_serving(false).await;
        let stop_timeout = self.node.config.current().settings.stop_timeout.0;
        tokio::select! {
            drained = tokio::time::timeout(stop_timeout, self.server.drain()) => {
                if drained.is_err() {
                    let calls = self.server.tracker.len();
                    warn!(calls, "calls still running after the stop timeout");
                }
            }
            name = signals.stop() => {
                warn!(signal = name, "stopping at once");
                stopped = Stopped::BySignal;
            }
        }
        self.server.abort().await;
        info!("stopped");
        self.publish(Action::Finished, "stopped");
        self.node.engines.stop().await;
        stopped
    }
}
