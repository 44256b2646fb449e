//! The time engine: the NTP server that the clock of the node is compared with.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use mainstay_fanout::Target;
use mainstay_node::ntp::{self, Measurement, QueryError};
use serde::{Deserialize, Serialize};
use tokio::sync::Mutex;

use super::{BuildError, Startup};
use crate::config::Config;

pub const RESTART_KEYS: &[&str] = &[];

/// A measurement of the configured server is used this long: every reader may ask for it, and the
/// server must not notice how many do.
const REUSE: Duration = Duration::from_secs(10);

/// `[time]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default, deny_unknown_fields)]
pub struct TimeSection {
    /// No server is queried without one.
    pub server: Option<NtpServer>,
}

/// An NTP server: HOST, HOST:PORT or [ADDRESS]:PORT.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct NtpServer {
    /// As it was written.
    text: String,
    target: Target,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} does not name an NTP server; write HOST, HOST:PORT or [ADDRESS]:PORT")]
pub struct BadNtpServer(String);

impl TryFrom<String> for NtpServer {
    type Error = BadNtpServer;

    fn try_from(text: String) -> Result<Self, BadNtpServer> {
        match Target::parse(&text) {
            Ok(target) => Ok(Self { text, target }),
            Err(_) => Err(BadNtpServer(crate::text::shorten(&text))),
        }
    }
}

impl From<NtpServer> for String {
    fn from(server: NtpServer) -> Self {
        server.text
    }
}

impl fmt::Display for NtpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl NtpServer {
    /// Queries the server; blocks.
    pub fn query(&self) -> Result<Measurement, QueryError> {
        let address = self.target.address(ntp::DEFAULT_PORT);
        ntp::query(&address.host.to_string(), address.port)
    }
}

/// The configured server and the last measurement of it.
#[derive(Debug)]
pub struct Time {
    server: ArcSwap<Option<NtpServer>>,
    /// Held while the server is queried, so that there is one query at a time.
    pub last: Mutex<Option<LastMeasurement>>,
}

#[derive(Debug, Clone)]
pub struct LastMeasurement {
    pub server: NtpServer,
    pub measured: Instant,
    pub measurement: Result<Measurement, Arc<QueryError>>,
}

impl Time {
    pub fn server(&self) -> Option<NtpServer> {
        Option::clone(&self.server.load())
    }
}

impl LastMeasurement {
    /// Returns the measurement if it is of this server and recent. A failure is one only for the calls
    /// that waited for it: they would otherwise fail one after the other.
    pub fn usable(
        &self,
        server: &NtpServer,
        waiting_since: Instant,
    ) -> Option<Result<Measurement, Arc<QueryError>>> {
        let recent = match self.measurement {
            Ok(_) => self.measured.elapsed() < REUSE,
            Err(_) => self.measured >= waiting_since,
        };
        (recent && self.server == *server).then(|| self.measurement.clone())
    }
}

pub async fn build(startup: Startup<'_>) -> Result<Time, BuildError> {
    let server = startup.config.settings.time.server.clone();
    Ok(Time {
        server: ArcSwap::from_pointee(server),
        last: Mutex::new(None),
    })
}

pub fn reload(time: &Time, _: &Config, new: &Config) {
    time.server
        .store(Arc::new(new.settings.time.server.clone()));
}

pub async fn stop(_: &Time) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_shared_only_by_the_calls_that_waited_for_it() {
        let server = NtpServer::try_from("192.0.2.1".to_owned()).unwrap();
        let other = NtpServer::try_from("192.0.2.2".to_owned()).unwrap();
        let before = Instant::now();
        let measured = before + Duration::from_millis(1);
        let failed = LastMeasurement {
            server: server.clone(),
            measured,
            measurement: Err(Arc::new(QueryError::NoAddress {
                host: server.to_string(),
            })),
        };
        assert!(failed.usable(&server, before).is_some_and(|it| it.is_err()));
        assert!(failed.usable(&other, before).is_none());
        let later = measured + Duration::from_millis(1);
        assert!(failed.usable(&server, later).is_none());
    }
}
