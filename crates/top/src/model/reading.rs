//! The answers of a node, and the value of each after a round.

use std::time::Duration;

use mainstay_api::machine::{
    CpUsInfo, DiskStats, Hostname, LoadAvg, LogsContainer, Mounts, NetworkDeviceStats, ServiceList,
    SystemStat, Version,
};
use mainstay_api::os;

use super::WorkloadAnswers;

/// The result of one call: `None` if it was not made in this round, else the answer or the error.
pub type Answer<T> = Option<Result<T, String>>;

/// The answers of one node at one moment.
#[derive(Debug, Default)]
pub struct Round {
    /// Time since the start of polling.
    pub at: Duration,
    pub hostname: Answer<Hostname>,
    pub version: Answer<Version>,
    pub cpu_info: Answer<CpUsInfo>,
    pub load: Answer<LoadAvg>,
    pub system: Answer<SystemStat>,
    pub memory: Answer<os::Memory>,
    pub disks: Answer<DiskStats>,
    pub mounts: Answer<Mounts>,
    pub network: Answer<NetworkDeviceStats>,
    pub processes: Answer<os::Process>,
    pub services: Answer<ServiceList>,
    pub workloads: Answer<WorkloadAnswers>,
    pub logs: Answer<LogsContainer>,
}

/// One value of a node.
#[derive(Debug, Default)]
pub enum Reading<T> {
    #[default]
    Pending,
    Known(T),
    /// The node answered with an error.
    Unavailable(String),
}

impl<T> Reading<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Pending | Self::Unavailable(_) => None,
        }
    }

    /// Applies an answer; `update` computes the new value from the previous one and the message.
    pub fn apply<M>(&mut self, answer: Answer<M>, update: impl FnOnce(Option<T>, M) -> T) {
        match answer {
            None => {}
            Some(Err(reason)) => *self = Self::Unavailable(reason),
            Some(Ok(message)) => {
                let earlier = match std::mem::take(self) {
                    Self::Known(value) => Some(value),
                    Self::Pending | Self::Unavailable(_) => None,
                };
                *self = Self::Known(update(earlier, message));
            }
        }
    }
}
