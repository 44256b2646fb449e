//! The reasons for which a request is refused.

use crate::{BadScheduleName, BadTimer};

#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error(transparent)]
    Name(#[from] BadScheduleName),
    #[error("invalid timer")]
    Timer(#[from] BadTimer),
    #[error("schedule {name:?} not found")]
    NotFound { name: String },
    #[error("there are {max} schedules already; destroy one first")]
    TooMany { max: usize },
    #[error("the schedule takes {bytes} bytes; the maximum is {max}")]
    TooLarge { bytes: usize, max: usize },
    #[error("schedule {name:?} has no timer: what it names is kept running and cannot be run once")]
    NoTimer { name: String },
    #[error("schedule {name:?} is running already")]
    AlreadyRunning { name: String },
    #[error("schedules are held for a sequence; wait for its end")]
    Held,
    #[error("schedule {name:?} is in force, but cannot be written to disk")]
    NotWritten {
        name: String,
        source: std::io::Error,
    },
    #[error("schedule {name:?} was removed, but what it started cannot be stopped: {reason}")]
    NotStopped { name: String, reason: String },
}
