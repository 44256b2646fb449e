//! Definitions of services, as the configuration declares them.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_cells::{Limits, Namespace};
use rustix::process::Signal;
use serde::{Deserialize, Serialize};

use crate::ServiceName;

/// A service as declared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Definition {
    /// The program and its arguments.
    pub command: Vec<String>,
    pub description: String,
    /// Services that are up first, if they are wanted at all.
    pub after: BTreeSet<ServiceName>,
    /// Services that are started with this one, are up first, and take it down when they are
    /// stopped.
    pub requires: BTreeSet<ServiceName>,
    /// Started with the node.
    pub enabled: bool,
    /// Runs once: exit code 0 counts as up.
    pub oneshot: bool,
    pub restart: RestartPolicy,
    pub back_off: BackOff,
    pub health: Option<HealthCheck>,
    /// `NAME=value`.
    pub environment: Vec<String>,
    /// Files with a `NAME=value` a line, read at each start; `environment` overrides them.
    pub environment_files: Vec<PathBuf>,
    pub working_directory: Option<String>,
    /// A name or a UID.
    pub user: Option<String>,
    /// A name or a GID; defaults to the user's.
    pub group: Option<String>,
    pub limits: Limits,
    /// Namespaces of its own; the others are the host's.
    pub isolate: BTreeSet<Namespace>,
    pub stop_signal: Option<Signal>,
    /// Defaults to the node's.
    pub stop_grace: Option<Duration>,
    /// Sizes of its log; default to the node's.
    pub log_file_bytes: Option<u64>,
    pub log_total_bytes: Option<u64>,
    /// Operations that the API may do on it.
    pub operations: BTreeSet<Operation>,
}

/// The condition for another run after one has ended by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

/// Delays between runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackOff {
    pub initial: Duration,
    pub max: Duration,
    /// A run at least this long starts over with the initial delay.
    pub reset_after: Duration,
}

impl Default for BackOff {
    fn default() -> Self {
        Self {
            initial: Duration::from_millis(100),
            max: Duration::from_secs(60),
            reset_after: Duration::from_secs(60),
        }
    }
}

impl BackOff {
    /// The delay after that many failures in a row, at least one.
    pub fn delay(&self, failures: u32) -> Duration {
        let doublings = failures.saturating_sub(1).min(31);
        self.initial.saturating_mul(1 << doublings).min(self.max)
    }
}

/// A health check and its pace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthCheck {
    pub probe: Probe,
    /// The time from the start of a run to the first check.
    pub delay: Duration,
    /// The time from the result of a check to the next.
    pub period: Duration,
    /// A check that takes longer has failed.
    pub timeout: Duration,
}

impl HealthCheck {
    /// A check at the pace that clients of the API know.
    pub fn new(probe: Probe) -> Self {
        Self {
            probe,
            delay: Duration::from_secs(1),
            period: Duration::from_secs(5),
            timeout: Duration::from_millis(500),
        }
    }
}

/// The thing that a health check tries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Probe {
    /// A command in the service's own cell exits with code 0.
    Exec(Vec<String>),
    /// A connection is accepted.
    Tcp(SocketAddr),
    /// A GET is answered with a status from 200 to 399.
    Http { address: SocketAddr, path: String },
    /// `grpc.health.v1.Health/Check` answers SERVING.
    Grpc {
        address: SocketAddr,
        service: String,
    },
}

/// An operation of the API on a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Operation {
    Start,
    Stop,
    Restart,
}

impl Operation {
    pub const ALL: [Self; 3] = [Self::Start, Self::Stop, Self::Restart];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Stop => "stop",
            Self::Restart => "restart",
        }
    }
}

impl Definition {
    /// A long-running service with the defaults of everything but its command.
    pub fn new(command: Vec<String>) -> Self {
        Self {
            command,
            description: String::new(),
            after: BTreeSet::new(),
            requires: BTreeSet::new(),
            enabled: true,
            oneshot: false,
            restart: RestartPolicy::Always,
            back_off: BackOff::default(),
            health: None,
            environment: Vec::new(),
            environment_files: Vec::new(),
            working_directory: None,
            user: None,
            group: None,
            limits: Limits::default(),
            isolate: BTreeSet::new(),
            stop_signal: None,
            stop_grace: None,
            log_file_bytes: None,
            log_total_bytes: None,
            operations: Operation::ALL.into(),
        }
    }

    /// Returns whether a process of the other definition is one of this: they differ at most in
    /// how it is supervised.
    pub fn has_same_process(&self, other: &Self) -> bool {
        let as_supervised_by = |of: &Self| Self {
            description: self.description.clone(),
            after: self.after.clone(),
            requires: self.requires.clone(),
            enabled: self.enabled,
            oneshot: self.oneshot,
            restart: self.restart,
            back_off: self.back_off,
            health: self.health.clone(),
            stop_signal: self.stop_signal,
            stop_grace: self.stop_grace,
            operations: self.operations.clone(),
            ..of.clone()
        };
        as_supervised_by(other) == *self
    }

    /// The services that it refers to.
    pub fn dependencies(&self) -> impl Iterator<Item = &ServiceName> {
        self.requires.iter().chain(&self.after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_back_off_doubles_up_to_its_maximum() {
        let back_off = BackOff {
            initial: Duration::from_secs(1),
            max: Duration::from_secs(5),
            reset_after: Duration::ZERO,
        };
        let delays = [1, 2, 3, 4, 1000, u32::MAX].map(|failures| back_off.delay(failures));
        assert_eq!(delays.map(|delay| delay.as_secs()), [1, 2, 4, 5, 5, 5]);
        let huge = BackOff {
            initial: Duration::MAX,
            max: Duration::MAX,
            ..back_off
        };
        assert_eq!(huge.delay(9), Duration::MAX);
    }
}
