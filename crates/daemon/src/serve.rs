//! The life of the daemon: start in order, run, reload, stop in order.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use mainstay_api::machine::service_state_event::Action;
use mainstay_cells::Cells;
use mainstay_cells::zygote::ZygoteCommand;
use mainstay_containers::Containers;
use mainstay_fanout::{Fanout, Settings};
use mainstay_identity::tls::{ServerTls, TlsError};
use mainstay_identity::{PkiDir, PkiError};
use mainstay_journal::{EventError, EventStore};
use mainstay_journal::{LogError, LogStore, LogWriter};
use mainstay_node::mounts::SpaceSurvey;
use sd_notify::NotifyState;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::call::{self, Gate};
use crate::client_file::ClientFileError;
use crate::config::{Config, Overrides};
use crate::events::{CellsToEvents, DaemonEvents};
use crate::listener::bind::{BindError, Sockets};
use crate::listener::{Accept, Connections, Door, accept};
use crate::log::{AUDIT_LOG, DAEMON_LOG, LogSink, LogSubscriber, set_level};
use crate::node::{Build, Node};
use crate::renewal::{self, Certificates, node_names};
use crate::services::{self, Health};
use crate::state::{StateDir, StateError};

/// How long log lines of calls may gather before they are written together.
const LOG_WINDOW: Duration = Duration::from_millis(10);
/// Descriptors kept for files when the number of connections is set by the process's limit.
const SPARE_DESCRIPTORS: usize = 128;

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    Bind(#[from] BindError),
    #[error("the node's identity cannot be set up")]
    Identity(#[from] PkiError),
    #[error("TLS cannot be set up")]
    Tls(#[from] TlsError),
    #[error(transparent)]
    ClientFile(#[from] ClientFileError),
    #[error("the logs cannot be opened")]
    Logs(#[from] LogError),
    #[error("the events cannot be opened")]
    Events(#[from] EventError),
    #[error("cells cannot be taken over")]
    Cells(#[from] mainstay_cells::OpenError),
    #[error("the contract cannot be served by reflection")]
    Reflection(#[from] tonic_reflection::server::Error),
    #[error("the operating system refused {what}")]
    System {
        what: &'static str,
        source: std::io::Error,
    },
}

/// What whoever started the daemon wants to know once it serves.
#[derive(Debug)]
pub struct Ready {
    pub listen: SocketAddr,
    pub pods_listen: Option<SocketAddr>,
    pub socket: PathBuf,
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
    let signals = Signals::listen()?;
    let state = StateDir::open(&config.state)?;
    let daemon = Daemon::start(config, overrides, build, &state).await?;
    // Whoever is told that it serves can read so in its log.
    daemon.daemon_log.flush();
    ready(&daemon.ready(&state, began));
    notify(&[NotifyState::Ready]);
    daemon.run(signals).await;
    Ok(())
}

struct Daemon {
    config: Arc<ArcSwap<Config>>,
    overrides: Overrides,
    node: Arc<Node>,
    events: DaemonEvents,
    health: Health,
    door: Door,
    fanout: Arc<Fanout>,
    reload: Arc<Notify>,
    listen: SocketAddr,
    pods_listen: Option<SocketAddr>,
    socket: PathBuf,
    has_client_file: bool,
    first_start: bool,
    daemon_log: LogSink,
    audit_log: LogSink,
}

impl Daemon {
    async fn start(
        config: Config,
        overrides: Overrides,
        build: Build,
        state: &StateDir,
    ) -> Result<Self, ServeError> {
        let daemon_log = open_log(&state.logs(), DAEMON_LOG, &config, LOG_WINDOW)?;
        let audit_log = open_log(&state.logs(), AUDIT_LOG, &config, Duration::ZERO)?;
        set_level(config.log_level);
        // Fails only where a subscriber is there already, as in a process with two daemons.
        let _ =
            tracing::subscriber::set_global_default(LogSubscriber::new(daemon_log.lines(), true));
        info!(version = build.version, state = %state.path().display(), "starting");

        let store = EventStore::open(&state.events(), config.events)?;
        let events = DaemonEvents::new(store.clone());
        events.state(
            Action::Starting,
            &format!("mainstay {} is starting", build.version),
        );

        let pki = PkiDir::new(state.pki());
        let ensured = pki.ensure(&node_names(&config), jiff::Timestamp::now())?;
        if let Some(warning) = &ensured.warning {
            warn!("{warning}");
        }
        let tls = ServerTls::new(&ensured.node)?;
        let sockets = Sockets::bind(&config, &state.socket()).await?;
        let listen = local_address(&sockets.tls)?;
        let pods_listen = sockets.pods.as_ref().map(local_address).transpose()?;

        let cells = open_cells(&config, state, &store)?;
        let node = Arc::new(Node {
            build,
            platform: mainstay_node::Platform::detect(Path::new("/")),
            state: state.path().to_owned(),
            config_file: config.file.clone(),
            events: store,
            logs: LogStore::open(&state.logs())?,
            space: SpaceSurvey::default(),
            containers: ArcSwap::from_pointee(Containers::new(&config.containers)),
            cells,
        });
        let (routes, health) = services::routes(&node)?;
        let fanout = Arc::new(Fanout::new(
            fleet_settings(&config, listen),
            renewal::towards_nodes(&ensured.node)?,
            mainstay_api::FILE_DESCRIPTOR_SET,
            mainstay_node::own_addresses,
            call::local(routes.clone()),
        ));
        let tls_config = tls.config();
        let certificates = Arc::new(Certificates {
            pki,
            client_file: state.client_config(),
            endpoint: reachable(listen).to_string(),
            tls,
            fanout: Arc::clone(&fanout),
            events: events.clone(),
            in_use: Mutex::new(ensured.node.info.fingerprint.clone()),
        });
        match certificates.ensure_client_file(&ensured.node, jiff::Timestamp::now()) {
            Err(why) if why.is_permission_problem() => return Err(why.into()),
            // Such as a full disk: there are other ways in, and it is tried again later.
            Err(why) => {
                warn!(error = %why, "the administrator's client configuration is not up to date")
            }
            Ok(_) => {}
        }

        let stop = CancellationToken::new();
        let gate = Gate::new(
            routes,
            Arc::clone(&fanout),
            daemon_log.lines(),
            audit_log.lines(),
            config.revoked.clone(),
            stop.clone(),
        );
        let connections = Connections::new(within_descriptors(&config));
        let door = Door::new(gate, connections, node.cells.clone(), stop.clone());
        let config = Arc::new(ArcSwap::from_pointee(config));
        let reload = Arc::new(Notify::new());
        health.set_serving(true).await;
        let acceptor = TlsAcceptor::from(tls_config);
        tokio::spawn(accept(door.clone(), Accept::Tls(sockets.tls, acceptor)));
        tokio::spawn(accept(door.clone(), Accept::Unix(sockets.unix)));
        if let Some(pods) = sockets.pods {
            tokio::spawn(accept(door.clone(), Accept::Pods(pods)));
        }
        let has_client_file = certificates.client_file.exists();
        tokio::spawn(renewal::keep(
            certificates,
            Arc::clone(&config),
            Arc::clone(&reload),
            stop,
        ));

        info!(%listen, "serving");
        events.state(Action::Running, &format!("serving on {listen}"));
        Ok(Self {
            config,
            overrides,
            node,
            events,
            health,
            door,
            fanout,
            reload,
            listen,
            pods_listen,
            socket: state.socket(),
            has_client_file,
            first_start: ensured.created_ca,
            daemon_log,
            audit_log,
        })
    }

    fn ready(&self, state: &StateDir, began: Instant) -> Ready {
        Ready {
            listen: self.listen,
            pods_listen: self.pods_listen,
            socket: self.socket.clone(),
            state: state.path().to_owned(),
            client_config: self.has_client_file.then(|| state.client_config()),
            first_start: self.first_start,
            took: began.elapsed(),
        }
    }

    async fn run(self, mut signals: Signals) {
        loop {
            match signals.next().await {
                Asked::Reload => self.reload(),
                Asked::Stop(signal) => {
                    self.stop(signal, &mut signals).await;
                    return;
                }
            }
        }
    }

    /// Takes over what can change while running. A file that is wrong changes nothing.
    fn reload(&self) {
        notify(&[NotifyState::Reloading]);
        match Config::load(&self.overrides) {
            Ok(new) => {
                let old = self.config.load();
                for (what, changed) in [
                    ("state", new.state != old.state),
                    ("listen", new.listen != old.listen),
                    ("pods_listen", new.pods_listen != old.pods_listen),
                    ("cells.cgroup", new.cells.cgroup != old.cells.cgroup),
                    ("cells.users", new.cells.users != old.cells.users),
                ] {
                    if changed {
                        warn!(
                            option = what,
                            "changed in the configuration; takes effect on restart"
                        );
                    }
                }
                set_level(new.log_level);
                self.daemon_log.set_limits(new.logs);
                self.audit_log.set_limits(new.logs);
                self.node.events.set_retention(new.events);
                self.door.connections.set_limits(within_descriptors(&new));
                self.door.gate.set_revoked(new.revoked.clone());
                self.fanout.set_settings(fleet_settings(&new, self.listen));
                self.node.cells.set_grace(new.cells.stop_grace);
                self.node.cells.set_log_limits(new.cells.logs);
                if new.containers != old.containers {
                    let containers = Containers::new(&new.containers);
                    self.node.containers.store(Arc::new(containers));
                }
                self.config.store(Arc::new(new));
                self.reload.notify_one();
                info!("configuration reloaded");
                self.events.state(Action::Running, "configuration reloaded");
            }
            Err(why) => error!(error = %why, "configuration not reloaded, the old one stays"),
        }
        notify(&[NotifyState::Ready]);
    }

    /// No new calls; running ones get their time; streams end with a status of their own.
    async fn stop(self, signal: &str, signals: &mut Signals) {
        let bound = self.config.load().stop_timeout;
        info!(signal, "stopping");
        notify(&[NotifyState::Stopping]);
        self.events
            .state(Action::Stopping, &format!("stopping on {signal}"));
        self.health.set_serving(false).await;
        self.door.stop.cancel();
        self.door.tracker.close();
        tokio::select! {
            () = self.door.tracker.wait() => {}
            name = signals.stop() => warn!(signal = name, "stopping at once"),
            _ = tokio::time::timeout(bound, std::future::pending::<()>()) => {
                warn!(calls = self.door.tracker.len(), "calls still running after the stop timeout");
            }
        }
        self.door.abort.cancel();
        self.door.tracker.wait().await;
        info!("stopped");
        self.events.state(Action::Finished, "stopped");
        if let Err(why) = self.node.events.sync() {
            error!(error = %why, "the events could not be written to disk");
        }
        // Somebody else's problem if it is gone already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

struct Signals {
    term: Signal,
    int: Signal,
    hup: Signal,
}

impl Signals {
    fn listen() -> Result<Self, ServeError> {
        let open = |kind| {
            signal(kind).map_err(|source| ServeError::System {
                what: "a signal handler",
                source,
            })
        };
        Ok(Self {
            term: open(SignalKind::terminate())?,
            int: open(SignalKind::interrupt())?,
            hup: open(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Asked {
        tokio::select! {
            _ = self.term.recv() => Asked::Stop("SIGTERM"),
            _ = self.int.recv() => Asked::Stop("SIGINT"),
            _ = self.hup.recv() => Asked::Reload,
        }
    }

    /// The next stop; what else is asked meanwhile is too late.
    async fn stop(&mut self) -> &'static str {
        loop {
            if let Asked::Stop(signal) = self.next().await {
                return signal;
            }
        }
    }
}

enum Asked {
    Stop(&'static str),
    Reload,
}

fn open_log(
    root: &Path,
    source: &str,
    config: &Config,
    window: Duration,
) -> Result<LogSink, ServeError> {
    let writer = LogWriter::open(root, source, config.logs)?;
    LogSink::start(writer, window).map_err(|source| ServeError::System {
        what: "a log writer thread",
        source,
    })
}

fn open_cells(config: &Config, state: &StateDir, events: &EventStore) -> Result<Cells, ServeError> {
    let settings = mainstay_cells::Settings {
        state: state.path().to_owned(),
        cgroup: config.cells.cgroup.clone(),
        layout: None,
        zygote: ZygoteCommand::default(),
        logs: config.cells.logs,
        grace: config.cells.stop_grace,
        uid_range: config.cells.users,
    };
    Ok(Cells::open(settings, CellsToEvents::new(events.clone()))?)
}

fn local_address(listener: &tokio::net::TcpListener) -> Result<SocketAddr, ServeError> {
    listener.local_addr().map_err(|source| ServeError::System {
        what: "the address of a socket",
        source,
    })
}

fn fleet_settings(config: &Config, listen: SocketAddr) -> Settings {
    let fleet = &config.fleet;
    Settings {
        forwarding: fleet.forwarding,
        port: fleet.port,
        connect_timeout: fleet.connect_timeout,
        answer_timeout: fleet.answer_timeout,
        peers: fleet.peers.clone(),
        revoked: config
            .revoked
            .iter()
            .map(|serial| serial.0.clone())
            .collect(),
        own_name: mainstay_node::hostname(),
        own_address: listen,
    }
}

/// The address under which a client on this machine reaches `listen`.
fn reachable(listen: SocketAddr) -> SocketAddr {
    let ip = match listen.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(ip) if ip.is_unspecified() => IpAddr::V6(Ipv6Addr::LOCALHOST),
        ip => ip,
    };
    SocketAddr::new(ip, listen.port())
}

/// Raises the descriptor limit as far as allowed, and never promises more connections than it.
fn within_descriptors(config: &Config) -> crate::config::ConnectionLimits {
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
    let most = if raised { limit.maximum } else { limit.current };
    let mut limits = config.limits;
    if let Some(most) = most.and_then(|most| usize::try_from(most).ok()) {
        limits.connections = limits
            .connections
            .min(most.saturating_sub(SPARE_DESCRIPTORS))
            .max(1);
    }
    limits
}

/// Without a service manager there is nobody to tell, and that is fine.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(why) = sd_notify::notify(state) {
        warn!(error = %why, "the service manager could not be told");
    }
}
