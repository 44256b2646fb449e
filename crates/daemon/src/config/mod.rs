//! The whole configuration as one typed value, checked before any port is bound.
//!
//! Three sources, the later wins: built-in defaults, the TOML file, the command line. A value
//! that is wrong is an error that names the file and the line; nothing is repaired silently.

mod file;
mod values;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_containers::Sockets;
use mainstay_fanout::Address;
use mainstay_journal::EventRetention;
use mainstay_journal::LogLimits;

pub use file::ConfigFile;
pub use values::{
    BadValue, ByteSize, CertificateName, LogLevel, PeerAddress, PeerName, PodsAddress, Serial,
    SocketPath, Span,
};

/// Read when no `--config` is given and the file is there.
pub const DEFAULT_FILE: &str = "/etc/mainstay/config.toml";
/// Where a node run by root keeps everything.
pub const DEFAULT_STATE: &str = "/var/lib/mainstay";
/// Where containerd listens as distributions install it.
pub const DEFAULT_CONTAINERD: &str = "/run/containerd/containerd.sock";
/// What clients of Aurae expect any node to be called.
pub const AURAE_SERVER_NAME: &str = "server.unsafe.aurae.io";
pub const DEFAULT_LISTEN: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 50000);

#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    #[error("cannot read configuration file {}", path.display())]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("configuration file {} is not valid\n{message}", path.display())]
    Invalid { path: PathBuf, message: String },
    #[error(
        "no home directory is known, so there is no default state directory; \
         name one with --state DIR"
    )]
    NoHome,
}

/// What the command line may set; unset values come from the file or the defaults.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    pub config: Option<PathBuf>,
    pub state: Option<PathBuf>,
    pub listen: Option<SocketAddr>,
    pub pods_listen: Option<PodsAddress>,
    pub names: Vec<CertificateName>,
    pub log_level: Option<LogLevel>,
    pub stop_timeout: Option<Span>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file this came from, if any: SIGHUP reads it again.
    pub file: Option<PathBuf>,
    pub state: PathBuf,
    pub listen: SocketAddr,
    pub pods_listen: Option<SocketAddr>,
    /// Further names and addresses for the node certificate.
    pub names: Vec<CertificateName>,
    pub stop_timeout: Duration,
    pub log_level: LogLevel,
    pub logs: LogLimits,
    pub events: EventRetention,
    pub limits: ConnectionLimits,
    /// Serial numbers of certificates that are no longer let in.
    pub revoked: BTreeSet<Serial>,
    pub fleet: Fleet,
    /// The container runtimes of others.
    pub containers: Sockets,
    pub cells: Cells,
}

/// How this node runs executables in cells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cells {
    /// The control group below which all cells are.
    pub cgroup: String,
    /// How long an executable has to end when it is stopped.
    pub stop_grace: Duration,
    /// How much is kept of the output of each executable.
    pub logs: LogLimits,
    /// Which users of the host stand for those of a cell with its own, and how many.
    pub users: (u32, u32),
}

/// How this node speaks with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fleet {
    /// Whether calls for other nodes are forwarded to them.
    pub forwarding: bool,
    /// Where nodes listen when nothing else is said.
    pub port: u16,
    pub connect_timeout: Duration,
    /// How long a node may take to answer, when its caller sets no bound.
    pub answer_timeout: Duration,
    pub peers: BTreeMap<String, Address>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    pub connections: usize,
    pub connections_per_client: usize,
    pub handshake_timeout: Duration,
}

impl Config {
    pub fn load(overrides: &Overrides) -> Result<Self, ConfigError> {
        let (path, file) = match &overrides.config {
            Some(path) => (Some(path.clone()), ConfigFile::read(path)?),
            None if Path::new(DEFAULT_FILE).exists() => {
                let path = PathBuf::from(DEFAULT_FILE);
                let file = ConfigFile::read(&path)?;
                (Some(path), file)
            }
            None => (None, ConfigFile::default()),
        };
        let state = match overrides.state.clone().or(file.state) {
            Some(state) => state,
            None => default_state()?,
        };
        let cells = cells(file.cells, &state);
        let mut names = file.names;
        names.extend(overrides.names.iter().cloned());
        if file.compatibility.aurae {
            names.push(CertificateName::Dns(AURAE_SERVER_NAME.to_owned()));
        }
        Ok(Self {
            file: path,
            state,
            listen: overrides.listen.or(file.listen).unwrap_or(DEFAULT_LISTEN),
            pods_listen: overrides
                .pods_listen
                .or(file.pods_listen)
                .map(|pods| pods.0),
            names,
            stop_timeout: overrides.stop_timeout.unwrap_or(file.stop_timeout).0,
            log_level: overrides.log_level.unwrap_or(file.log.level),
            logs: LogLimits {
                file_bytes: file.log.file_size.0,
                total_bytes: file.log.total_size.0,
            },
            events: EventRetention {
                min_events: file.events.keep_events,
                min_age: file.events.keep_for.0,
                max_bytes: file.events.max_size.0,
            },
            limits: ConnectionLimits {
                connections: file.limits.connections.get(),
                connections_per_client: file.limits.connections_per_client.get(),
                handshake_timeout: file.limits.handshake_timeout.0,
            },
            revoked: file.identity.revoked,
            fleet: Fleet {
                forwarding: file.fleet.forwarding,
                port: file.fleet.port.get(),
                connect_timeout: file.fleet.connect_timeout.0,
                answer_timeout: file.fleet.answer_timeout.0,
                peers: file
                    .peers
                    .into_iter()
                    .map(|(name, peer)| (name.0, peer.0.address(file.fleet.port.get())))
                    .collect(),
            },
            containers: sockets(file.containers),
            cells,
        })
    }
}

fn sockets(file: file::Containers) -> Sockets {
    let containerd = file
        .containerd
        .map_or_else(|| PathBuf::from(DEFAULT_CONTAINERD), |socket| socket.0);
    let namespaces = file.namespaces.into_iter();
    Sockets {
        cri: file
            .cri
            .map_or_else(|| containerd.clone(), |socket| socket.0),
        containerd,
        namespaces: namespaces.map(|(name, socket)| (name, socket.0)).collect(),
        timeout: file.timeout.0,
    }
}

fn cells(file: file::Cells, state: &Path) -> Cells {
    let cgroup = file
        .cgroup
        .map_or_else(|| default_cgroup(state), |name| name.0);
    Cells {
        cgroup,
        stop_grace: file.stop_grace.0,
        logs: LogLimits {
            file_bytes: file.log_file_size.0,
            total_bytes: file.log_total_size.0,
        },
        users: (file.first_user, file.users.get()),
    }
}

/// Two nodes on one machine have two states, and must not share control groups.
fn default_cgroup(state: &Path) -> String {
    if state == Path::new(DEFAULT_STATE) {
        return "mainstay".to_owned();
    }
    let path = std::path::absolute(state).unwrap_or_else(|_| state.to_owned());
    let digest = mainstay_cells::digest(path.as_os_str().as_encoded_bytes());
    format!("mainstay-{digest:016x}")
}

/// `/var/lib/mainstay` for root, `$XDG_STATE_HOME/mainstay` for anybody else.
pub fn default_state() -> Result<PathBuf, ConfigError> {
    if rustix::process::geteuid().is_root() {
        return Ok(PathBuf::from(DEFAULT_STATE));
    }
    let absolute = |name: &str| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    absolute("XDG_STATE_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/state")))
        .map(|base| base.join("mainstay"))
        .ok_or(ConfigError::NoHome)
}
