//! What a node answered, and what is known from it.

use std::time::Duration;

use mainstay_api::machine::{
    CpUsInfo, DiskStats, Hostname, LoadAvg, LogsContainer, Mounts, NetworkDeviceStats, ServiceList,
    SystemStat, Version,
};
use mainstay_api::os;

/// What came of one question: nothing if it was not asked this time, else an answer or why not.
pub type Answer<T> = Option<Result<T, String>>;

/// What one node answered at one moment.
#[derive(Debug, Default)]
pub struct Round {
    /// When, counted from a moment in the past that is the same for all rounds.
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
    pub logs: Answer<LogsContainer>,
}

/// What is known of one thing.
#[derive(Debug, Default)]
pub enum Reading<T> {
    #[default]
    Awaited,
    Known(T),
    /// The node does not tell it.
    Withheld(String),
}

impl<T> Reading<T> {
    pub fn known(&self) -> Option<&T> {
        match self {
            Self::Known(value) => Some(value),
            Self::Awaited | Self::Withheld(_) => None,
        }
    }

    /// Takes in an answer; `figure` makes the new value of it and of the one before.
    pub fn take_in<M>(&mut self, answer: Answer<M>, figure: impl FnOnce(Option<T>, M) -> T) {
        match answer {
            None => {}
            Some(Err(why)) => *self = Self::Withheld(why),
            Some(Ok(message)) => {
                let earlier = match std::mem::take(self) {
                    Self::Known(value) => Some(value),
                    Self::Awaited | Self::Withheld(_) => None,
                };
                *self = Self::Known(figure(earlier, message));
            }
        }
    }
}
