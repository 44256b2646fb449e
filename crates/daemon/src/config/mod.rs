//! The whole configuration as one typed value, checked before any port is bound.
//!
//! Three sources, the later wins: built-in defaults, the TOML file, the command line. A wrong
//! value is an error that names the file and the line; nothing is repaired silently.

mod check;
mod drop_ins;
mod keys;
mod peer;
mod running;
mod secrets;
mod settings;
mod values;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use mainstay_supervisor::graph::BadGraph;

use crate::engines::services::BadService;

pub use check::{Problem, check};
pub use keys::Key;
pub(crate) use keys::changed_keys;
pub use peer::Peer;
pub use running::RunningConfig;
pub use secrets::redacted_texts;
pub use settings::{MAX_FILE_BYTES, Settings};
pub use values::{
    BadValue, ByteSize, CertificateName, CgroupName, ForwardingTargets, HiddenPath, LogLevel,
    MaxRole, PeerAddress, PeerName, Percent, PodsAddress, Serial, SocketPath, Span,
};

/// Read when no `--config` is given and the file exists.
pub const DEFAULT_FILE: &str = "/etc/mainstay/config.toml";
/// The state directory of a node run by root.
pub const DEFAULT_STATE: &str = "/var/lib/mainstay";
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
    #[error("configuration file {}", path.display())]
    Service { path: PathBuf, source: BadService },
    #[error(
        "service {service:?} is defined twice: in {} and in {}",
        first.display(), second.display()
    )]
    ServiceTwice {
        service: String,
        first: PathBuf,
        second: PathBuf,
    },
    #[error("the services of the configuration cannot be ordered")]
    ServiceGraph { source: BadGraph },
    #[error(
        "cannot choose a default state directory: no home directory is known; \
         set one with --state DIR"
    )]
    NoHome,
}

/// Values of the command line; unset ones come from the file or the defaults.
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

impl Overrides {
    /// The keys whose value in the file has no effect, with the option that replaces it.
    pub(crate) fn replaced_keys(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        [
            ("state", "--state", self.state.is_some()),
            ("listen", "--listen", self.listen.is_some()),
            ("pods_listen", "--pods-listen", self.pods_listen.is_some()),
            ("log.level", "--log-level", self.log_level.is_some()),
            (
                "stop_timeout",
                "--stop-timeout",
                self.stop_timeout.is_some(),
            ),
        ]
        .into_iter()
        .filter(|(_, _, given)| *given)
        .map(|(key, option, _)| (key, option))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// The file it was read from, if any: SIGHUP reads it again.
    pub file: Option<PathBuf>,
    /// The directory that holds everything the node keeps.
    pub state: PathBuf,
    /// Every key, with the command line applied.
    pub settings: Settings,
}

impl Config {
    pub fn load(overrides: &Overrides) -> Result<Self, ConfigError> {
        let default_file = Path::new(DEFAULT_FILE);
        let file = match &overrides.config {
            Some(path) => Some(path.clone()),
            None => default_file.exists().then(|| default_file.to_owned()),
        };
        let settings = match &file {
            Some(path) => Settings::read(path)?,
            None => Settings::default(),
        };
        Self::with_overrides(settings, file, overrides)
    }

    /// The configuration of a file with these settings, the command line applied.
    pub(crate) fn with_overrides(
        mut settings: Settings,
        file: Option<PathBuf>,
        overrides: &Overrides,
    ) -> Result<Self, ConfigError> {
        let beside = file.as_deref().unwrap_or(Path::new(DEFAULT_FILE));
        drop_ins::add(beside, &mut settings)?;
        settings.apply(overrides);
        let state = match settings.state.clone() {
            Some(state) => state,
            None => default_state()?,
        };
        // Filled in, so that naming the default in the file is no change.
        settings.state = Some(state.clone());
        Ok(Self {
            file,
            state,
            settings,
        })
    }
}

/// Returns `/var/lib/mainstay` for root, `$XDG_STATE_HOME/mainstay` for other users.
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
