//! The value types of services in the configuration, each checked as it is read.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use rustix::process::Signal;
use serde::{Deserialize, Serialize, Serializer};

/// A command: a list of words, or one text with the quotes of a shell. No shell runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "UncheckedCommand", into = "Vec<String>")]
pub struct Command(Vec<String>);

#[derive(Deserialize)]
#[serde(untagged, expecting = "a command is a text or a list of texts")]
enum UncheckedCommand {
    Text(String),
    Words(Vec<String>),
}

impl Command {
    pub fn words(&self) -> &[String] {
        &self.0
    }
}

impl TryFrom<UncheckedCommand> for Command {
    type Error = String;

    fn try_from(unchecked: UncheckedCommand) -> Result<Self, String> {
        let words = match unchecked {
            UncheckedCommand::Words(words) => words,
            UncheckedCommand::Text(text) => shlex::split(&text)
                .ok_or("the command has an unterminated quote or a trailing backslash")?,
        };
        match words.first() {
            Some(program) if !program.is_empty() => Ok(Self(words)),
            _ => Err("the command is empty".to_owned()),
        }
    }
}

impl From<Command> for Vec<String> {
    fn from(command: Command) -> Self {
        command.0
    }
}

/// The name of an environment variable.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(try_from = "String")]
pub struct VariableName(String);

impl FromStr for VariableName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains(['=', '\0']) {
            return Err(format!(
                "{text:?} is not the name of an environment variable"
            ));
        }
        Ok(Self(text.to_owned()))
    }
}

/// A user or group: a name or a number.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged, expecting = "a user or group is a name or a number")]
pub enum Identity {
    Name(String),
    Number(u32),
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Number(number) => write!(f, "{number}"),
        }
    }
}

/// A number of CPUs, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "f64")]
pub struct CpuCount {
    thousandths: u32,
}

impl CpuCount {
    /// The CPU time in each 100 ms, in microseconds.
    pub fn quota_micros(self) -> i64 {
        i64::from(self.thousandths) * 100
    }
}

impl TryFrom<f64> for CpuCount {
    type Error = String;

    fn try_from(cpus: f64) -> Result<Self, String> {
        const MAX_CPUS: f64 = 1_000_000.0;
        if !(0.01..=MAX_CPUS).contains(&cpus) {
            return Err(format!("{cpus} is not a number of CPUs; write 0.5 or 2.0"));
        }
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "within the range above"
        )]
        let thousandths = (cpus * 1000.0).round() as u32;
        Ok(Self { thousandths })
    }
}

impl Serialize for CpuCount {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(f64::from(self.thousandths) / 1000.0)
    }
}

/// An address and a path: `http://127.0.0.1:8080/live`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct HttpTarget {
    pub address: SocketAddr,
    pub path: String,
}

impl FromStr for HttpTarget {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bad =
            || format!("\"{text}\" is not checked over HTTP; write http://127.0.0.1:8080/live");
        let rest = text.strip_prefix("http://").ok_or_else(bad)?;
        let (address, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        // Sent as it is.
        if !path.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(bad());
        }
        Ok(Self {
            address: address.parse().map_err(|_| bad())?,
            path: path.to_owned(),
        })
    }
}

impl fmt::Display for HttpTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "http://{}{}", self.address, self.path)
    }
}

/// A signal by its name: `SIGTERM` or `term`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct StopSignal(pub Signal);

const SIGNALS: [(&str, Signal); 9] = [
    ("SIGTERM", Signal::TERM),
    ("SIGINT", Signal::INT),
    ("SIGQUIT", Signal::QUIT),
    ("SIGHUP", Signal::HUP),
    ("SIGUSR1", Signal::USR1),
    ("SIGUSR2", Signal::USR2),
    ("SIGWINCH", Signal::WINCH),
    ("SIGABRT", Signal::ABORT),
    ("SIGKILL", Signal::KILL),
];

impl FromStr for StopSignal {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let upper = text.to_ascii_uppercase();
        let bare = upper.strip_prefix("SIG").unwrap_or(&upper);
        let known = SIGNALS
            .iter()
            .find(|(name, _)| name.ends_with(bare) && name.len() == bare.len() + 3);
        known.map(|(_, signal)| Self(*signal)).ok_or_else(|| {
            let names = SIGNALS.map(|(name, _)| name).join(", ");
            format!("\"{text}\" does not stop a service; use one of {names}")
        })
    }
}

impl fmt::Display for StopSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = SIGNALS.iter().find(|(_, signal)| *signal == self.0);
        f.write_str(name.map_or("SIGTERM", |(name, _)| name))
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

macro_rules! as_text {
    ($($kind:ty),+) => {$(
        impl TryFrom<String> for $kind {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> { text.parse() }
        }

        impl Serialize for $kind {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }
    )+};
}
as_text!(VariableName, HttpTarget, StopSignal);
