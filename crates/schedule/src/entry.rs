//! A schedule as requested and as stored.

use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde::{Deserialize, Serialize};

use crate::interval::next_of_interval;
use crate::{Calendar, ScheduleName};

/// The shortest interval, and the longest time of anything.
const MIN_INTERVAL: Duration = Duration::from_secs(1);
const MAX_TIME: Duration = Duration::from_secs(10 * 366 * 24 * 60 * 60);

/// Work and when to do it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entry<W> {
    pub name: ScheduleName,
    pub work: W,
    /// Without one the work is kept running.
    pub timer: Option<Timer>,
}

/// The times of runs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timer {
    pub when: When,
    /// Each run is delayed by a random time up to this one.
    #[serde(default)]
    pub jitter: Duration,
    /// Whether missed times are made up for by one run.
    #[serde(default)]
    pub catch_up: bool,
    /// Bounds a run.
    #[serde(default)]
    pub timeout: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum When {
    Calendar {
        expression: Calendar,
        /// Of an expression without one; UTC by default.
        time_zone: Option<String>,
    },
    Every(Duration),
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTimer {
    #[error("the interval is {}; the minimum is 1s, the maximum 10 years", shown(*.every))]
    Interval { every: Duration },
    #[error("the time zone {zone:?} is unknown; write one such as Europe/Zurich or UTC")]
    TimeZone { zone: String },
    #[error("the calendar {expression:?} has no time in the next 60 years")]
    Never { expression: String },
    #[error("the {what} of {} is more than 10 years", shown(*.time))]
    TooLong { what: &'static str, time: Duration },
    #[error("the timeout is 0; omit it for none")]
    NoTime,
}

fn shown(time: Duration) -> String {
    format!("{time:?}")
}

impl Timer {
    /// Checks everything that the types do not.
    pub fn check(&self, now: Timestamp) -> Result<(), BadTimer> {
        match &self.when {
            When::Every(every) if !(MIN_INTERVAL..=MAX_TIME).contains(every) => {
                return Err(BadTimer::Interval { every: *every });
            }
            When::Every(_) => {}
            When::Calendar {
                expression,
                time_zone,
            } => {
                if let Some(zone) = time_zone {
                    TimeZone::get(zone).map_err(|_| BadTimer::TimeZone {
                        zone: zone.chars().take(80).collect(),
                    })?;
                }
                if self.next(now, now).is_none() {
                    let expression = expression.to_string();
                    return Err(BadTimer::Never { expression });
                }
            }
        }
        let too_long = |what, time: Option<Duration>| match time.filter(|time| *time > MAX_TIME) {
            Some(time) => Err(BadTimer::TooLong { what, time }),
            None => Ok(()),
        };
        too_long("jitter", Some(self.jitter))?;
        too_long("timeout", self.timeout)?;
        match self.timeout {
            Some(Duration::ZERO) => Err(BadTimer::NoTime),
            _ => Ok(()),
        }
    }

    /// Returns the first time after `now`, without jitter. Intervals count from `anchor`.
    pub fn next(&self, anchor: Timestamp, now: Timestamp) -> Option<Timestamp> {
        match &self.when {
            When::Every(every) => next_of_interval(anchor, *every, now),
            When::Calendar {
                expression,
                time_zone,
            } => {
                // A zone that the machine no longer knows.
                let zone = time_zone.as_deref().map(TimeZone::get);
                let zone = zone.transpose().ok()?.unwrap_or(TimeZone::UTC);
                expression.next_after(now, &zone)
            }
        }
    }

    /// Delays a time by the jitter.
    pub(crate) fn delayed(&self, at: Timestamp) -> Timestamp {
        let most = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX);
        let delay = Duration::from_millis(fastrand::u64(0..=most));
        at.checked_add(delay).unwrap_or(at)
    }
}
