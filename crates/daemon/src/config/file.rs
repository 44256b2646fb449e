//! The TOML file as written: every key optional, unknown keys refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Deserialize;

use super::ConfigError;
use super::values::{
    ByteSize, CertificateName, CgroupName, LogLevel, PeerAddress, PeerName, PodsAddress, Serial,
    SocketPath, Span,
};

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConfigFile {
    pub(super) state: Option<PathBuf>,
    pub(super) listen: Option<SocketAddr>,
    pub(super) pods_listen: Option<PodsAddress>,
    pub(super) names: Vec<CertificateName>,
    pub(super) stop_timeout: Span,
    pub(super) log: Log,
    pub(super) events: Events,
    pub(super) limits: Limits,
    pub(super) identity: Identity,
    pub(super) fleet: Fleet,
    pub(super) peers: BTreeMap<PeerName, PeerAddress>,
    pub(super) containers: Containers,
    pub(super) cells: Cells,
    pub(super) compatibility: Compatibility,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Log {
    pub(super) level: LogLevel,
    pub(super) file_size: ByteSize,
    pub(super) total_size: ByteSize,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Events {
    pub(super) keep_events: u64,
    pub(super) keep_for: Span,
    pub(super) max_size: ByteSize,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Limits {
    pub(super) connections: NonZeroUsize,
    pub(super) connections_per_client: NonZeroUsize,
    pub(super) handshake_timeout: Span,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Identity {
    pub(super) revoked: BTreeSet<Serial>,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Fleet {
    pub(super) forwarding: bool,
    pub(super) port: NonZeroU16,
    pub(super) connect_timeout: Span,
    pub(super) answer_timeout: Span,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Containers {
    pub(super) containerd: Option<SocketPath>,
    /// Where containerd is, if not said otherwise: it usually serves both.
    pub(super) cri: Option<SocketPath>,
    pub(super) timeout: Span,
    pub(super) namespaces: BTreeMap<String, SocketPath>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Compatibility {
    pub(super) aurae: bool,
}

#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Cells {
    /// One that no other node on this machine uses, if not said otherwise.
    pub(super) cgroup: Option<CgroupName>,
    pub(super) stop_grace: Span,
    pub(super) log_file_size: ByteSize,
    pub(super) log_total_size: ByteSize,
    pub(super) first_user: u32,
    pub(super) users: NonZeroU32,
}

impl Default for ConfigFile {
    fn default() -> Self {
        Self {
            state: None,
            listen: None,
            pods_listen: None,
            names: Vec::new(),
            stop_timeout: Span(Duration::from_secs(10)),
            log: Log::default(),
            events: Events::default(),
            limits: Limits::default(),
            identity: Identity::default(),
            fleet: Fleet::default(),
            peers: BTreeMap::new(),
            containers: Containers::default(),
            cells: Cells::default(),
            compatibility: Compatibility::default(),
        }
    }
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            forwarding: true,
            port: NonZeroU16::new(super::DEFAULT_LISTEN.port()).unwrap_or(NonZeroU16::MIN),
            connect_timeout: Span(Duration::from_secs(2)),
            answer_timeout: Span(Duration::from_secs(30)),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            file_size: ByteSize(16 << 20),
            total_size: ByteSize(64 << 20),
        }
    }
}

impl Default for Events {
    fn default() -> Self {
        Self {
            keep_events: 10_000,
            keep_for: Span(Duration::from_secs(24 * 60 * 60)),
            max_size: ByteSize(64 << 20),
        }
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: NonZeroUsize::new(4096).unwrap_or(NonZeroUsize::MIN),
            connections_per_client: NonZeroUsize::new(256).unwrap_or(NonZeroUsize::MIN),
            handshake_timeout: Span(Duration::from_secs(10)),
        }
    }
}

impl Default for Containers {
    fn default() -> Self {
        Self {
            containerd: None,
            cri: None,
            // Less than clients wait by default, so that they hear who did not answer.
            timeout: Span(Duration::from_secs(8)),
            namespaces: BTreeMap::new(),
        }
    }
}

impl Default for Cells {
    fn default() -> Self {
        Self {
            cgroup: None,
            stop_grace: Span(Duration::from_secs(10)),
            log_file_size: ByteSize(64 << 20),
            log_total_size: ByteSize(2 << 30),
            // Above what distributions hand out by themselves.
            first_user: 2_000_000_000,
            users: NonZeroU32::new(65_536).unwrap_or(NonZeroU32::MIN),
        }
    }
}

/// Far more than anybody writes by hand.
const MOST_BYTES: u64 = 1 << 20;

/// The error shows a line of the file, however long that is.
fn shortened(message: &str) -> String {
    const MOST_CHARS: usize = 200;
    let lines = message
        .lines()
        .map(|line| match line.char_indices().nth(MOST_CHARS) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

impl ConfigFile {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        let file = File::open(path).map_err(unreadable)?;
        file.take(MOST_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > MOST_BYTES {
            return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
        }
        Self::parse(&text).map_err(|message| ConfigError::Invalid {
            path: path.to_owned(),
            message,
        })
    }

    /// The error shows the line it is about, with its number and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| shortened(error.to_string().trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_is_the_default() {
        let file = ConfigFile::parse("").unwrap();
        assert_eq!(file.log.level, LogLevel::Info);
        assert_eq!(file.limits.connections.get(), 4096);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error =
            ConfigFile::parse("listen = '127.0.0.1:1'\n\n[log]\nlevle = 'info'\n").unwrap_err();
        assert!(error.contains("line 4"), "{error}");
        assert!(error.contains("levle"), "{error}");
        assert!(error.contains("level"), "says what is known: {error}");
    }

    #[test]
    fn a_wrong_value_points_at_its_line() {
        for (text, line, word) in [
            ("listen = 'nowhere'", 1, "address"),
            ("\npods_listen = '10.0.0.1:15441'", 2, "loopback"),
            ("names = ['good', 'bad name']", 1, "bad name"),
            ("[log]\nfile_size = '1 parsec'", 2, "parsec"),
            ("[log]\nlevel = 'loud'", 2, "loud"),
            ("[events]\nkeep_for = 'soon'", 2, "soon"),
            ("[limits]\nconnections = 0", 2, "zero"),
            ("[identity]\nrevoked = ['xyz']", 2, "xyz"),
            ("[fleet]\nport = 0", 2, "zero"),
            ("[fleet]\nforwarding = 'maybe'", 2, "maybe"),
            ("[peers]\nn1 = 'a b'", 2, "a b"),
            ("[peers]\n'n 1' = 'a'", 2, "n 1"),
            ("[containers]\ncri = 'crio.sock'", 2, "crio.sock"),
            ("[containers.namespaces]\nsystem = 7", 2, "7"),
            ("[cells]\ncgroup = '../x'", 2, "../x"),
            ("[cells]\nusers = 0", 2, "zero"),
            ("[cells]\nstop_grace = 'never'", 2, "never"),
            ("[compatibility]\naurae = 'yes'", 2, "yes"),
            ("state = 7", 1, "7"),
        ] {
            let error = ConfigFile::parse(text).unwrap_err();
            assert!(error.contains(&format!("line {line}")), "{text}: {error}");
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
