//! Requests of the core to its driver.

use std::time::Duration;

use super::state::{Health, State};
use crate::ServiceName;

/// Something for the driver to do, in order. A run is answered by the input of the same run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Start the process; answered by [`super::Core::launched`] or [`super::Core::exited`].
    Launch { service: ServiceName, run: u64 },
    /// Stop the process; answered by [`super::Core::exited`].
    Terminate { service: ServiceName, run: u64 },
    /// Probe the service; answered by [`super::Core::health_checked`].
    CheckHealth { service: ServiceName, run: u64 },
    /// Call [`super::Core::timer`] after this time.
    SetTimer {
        service: ServiceName,
        timer: u64,
        after: Duration,
    },
    /// A change that others learn of.
    Publish(Change),
    /// The service is gone: nothing of it is needed any more.
    Removed { service: ServiceName },
}

/// A change of a service's state or health.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    pub service: ServiceName,
    pub state: State,
    pub message: String,
    pub health: Health,
}
