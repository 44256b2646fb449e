//! The state of a service, as clients of the API know it.

/// A state in a service's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Defined, and never wanted so far.
    Initialized,
    /// Wanted, and held back by a dependency or a back-off.
    Waiting,
    Starting,
    Running,
    Stopping,
    /// Has ended as it should.
    Finished,
    /// Has ended as it should not, and is not started again by itself.
    Failed,
}

impl State {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Initialized => "Initialized",
            Self::Waiting => "Waiting",
            Self::Starting => "Starting",
            Self::Running => "Running",
            Self::Stopping => "Stopping",
            Self::Finished => "Finished",
            Self::Failed => "Failed",
        }
    }
}

/// The latest result of a service's health check.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Health {
    /// No check was made in this run, or the service has none.
    #[default]
    Unknown,
    Healthy,
    Unhealthy {
        reason: String,
    },
}
