//! Every key of the TOML file: all optional, unknown keys refused.

use std::fs::File;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_lifecycle::platform::PlatformName;
use serde::{Deserialize, Serialize, Serializer};

use super::values::{CertificateName, PodsAddress, Span};
use super::{ConfigError, DEFAULT_LISTEN, Overrides};
use crate::engines::{self, for_each_engine};

/// Larger files are refused unread.
pub const MAX_FILE_BYTES: u64 = 1 << 20;
/// Error messages quote at most this much of a line.
const MAX_QUOTED_CHARS: usize = 200;

macro_rules! settings {
    ($($engine:ident ($($need:ident),*): $type:ident [$($section:ident: $section_type:ident),*];)+) => {
        /// The keys of the configuration file: the daemon's own and the sections of its engines.
        #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct Settings {
            #[serde(serialize_with = "lossy_path")]
            pub state: Option<PathBuf>,
            pub listen: SocketAddr,
            pub pods_listen: Option<PodsAddress>,
            /// Further names and addresses for the node certificate.
            pub names: Vec<CertificateName>,
            /// Bounds the wait for running calls on a stop.
            pub stop_timeout: Span,
            /// Defaults to `metal` for PID 1 of a machine, to `container` for all others.
            pub platform: Option<PlatformName>,
            $($(pub $section: engines::$engine::$section_type,)*)+
        }

        impl Default for Settings {
            fn default() -> Self {
                Self {
                    state: None,
                    listen: DEFAULT_LISTEN,
                    pods_listen: None,
                    names: Vec::new(),
                    stop_timeout: Span(Duration::from_secs(10)),
                    platform: None,
                    $($($section: Default::default(),)*)+
                }
            }
        }
    };
}
for_each_engine!(settings);

impl Settings {
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = read_file(path)?;
        Self::parse(&text).map_err(|message| ConfigError::Invalid {
            path: path.to_owned(),
            message,
        })
    }

    /// Parses a file's text. The error quotes the wrong line with its number and column.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| shorten_lines(error.to_string().trim_end()))
    }

    pub(super) fn apply(&mut self, overrides: &Overrides) {
        if let Some(state) = &overrides.state {
            self.state = Some(state.clone());
        }
        self.listen = overrides.listen.unwrap_or(self.listen);
        self.pods_listen = overrides.pods_listen.or(self.pods_listen);
        self.names.extend(overrides.names.iter().cloned());
        self.stop_timeout = overrides.stop_timeout.unwrap_or(self.stop_timeout);
        self.log.level = overrides.log_level.unwrap_or(self.log.level);
    }
}

/// Reads a file of the configuration.
pub(super) fn read_file(path: &Path) -> Result<String, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut text = String::new();
    let file = File::open(path).map_err(unreadable)?;
    file.take(MAX_FILE_BYTES + 1)
        .read_to_string(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > MAX_FILE_BYTES {
        return Err(unreadable(std::io::ErrorKind::FileTooLarge.into()));
    }
    Ok(text)
}

/// A path of the command line may hold bytes that are not UTF-8.
fn lossy_path<S: Serializer>(path: &Option<PathBuf>, serializer: S) -> Result<S::Ok, S::Error> {
    let text = path.as_ref().map(|path| path.to_string_lossy());
    text.serialize(serializer)
}

/// The error quotes a line of the file, however long that is.
pub(super) fn shorten_lines(message: &str) -> String {
    let lines = message
        .lines()
        .map(|line| match line.char_indices().nth(MAX_QUOTED_CHARS) {
            Some((end, _)) => format!("{}…", &line[..end]),
            None => line.to_owned(),
        });
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::LogLevel;

    #[test]
    fn an_empty_file_is_the_default() {
        let file = Settings::parse("").unwrap();
        assert_eq!(file.log.level, LogLevel::Info);
        assert_eq!(file.limits.connections.get(), 4096);
    }

    #[test]
    fn an_unknown_key_is_named_with_its_line() {
        let error =
            Settings::parse("listen = '127.0.0.1:1'\n\n[log]\nlevle = 'info'\n").unwrap_err();
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
            ("[forwarding]\ntargets = 'all'", 2, "all"),
            ("[forwarding]\nmax_role = 'root'", 2, "root"),
            ("[peers]\nn1 = 'a b'", 2, "a b"),
            ("[peers]\nn1 = { address = 'a b' }", 2, "a b"),
            ("[peers]\nn1 = { max_role = 'os:reader' }", 2, "address"),
            ("[peers]\nn1 = { address = 'a', role = 'x' }", 2, "role"),
            (
                "[peers]\nn1 = { address = 'a', max_role = 'x' }",
                2,
                "unknown role",
            ),
            ("[peers]\n'n 1' = 'a'", 2, "n 1"),
            ("[containers]\ncri = 'crio.sock'", 2, "crio.sock"),
            ("[containers.namespaces]\nsystem = 7", 2, "7"),
            ("[cells]\ncgroup = '../x'", 2, "../x"),
            ("[cells]\nusers = 0", 2, "zero"),
            ("[cells]\nstop_grace = 'never'", 2, "never"),
            ("[cells]\nlog_keep_free = '91%'", 2, "91%"),
            ("[cells]\nlog_keep_free = '-1%'", 2, "-1%"),
            ("[compatibility]\naurae = 'yes'", 2, "yes"),
            ("state = 7", 1, "7"),
            ("platform = 'moon'", 1, "moon"),
            ("[lifecycle]\nreboot_command = 'reboot'", 2, "reboot"),
        ] {
            let error = Settings::parse(text).unwrap_err();
            assert!(error.contains(&format!("line {line}")), "{text}: {error}");
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
