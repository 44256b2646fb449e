//! Scheduled work: what is kept running, and what runs at given times.
//!
//! The times are pure functions of the time before ([`Calendar`], [`Timer::next`]). The engine
//! ([`Schedules`]) waits for them, keeps schedules and their last runs on disk, and has a
//! [`Runner`] do the work; it never knows what that is.

mod calendar;
mod engine;
mod entry;
mod interval;
mod name;
mod store;

pub use calendar::{BadCalendar, Calendar};
pub use engine::{Begun, Change, Ended, FinishedRun, Runner, ScheduleError, Schedules, Status};
pub use entry::{BadTimer, Entry, Timer, When};
pub use name::{BadScheduleName, ScheduleName};
pub use store::OpenError;
