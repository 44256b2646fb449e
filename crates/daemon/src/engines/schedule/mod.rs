//! The schedule engine: executables that are kept running, and runs at given times.

mod events;
mod runner;

use mainstay_schedule::{OpenError, Schedules};

use super::cells::Cells;
use super::journal::Journal;
use super::services::Services;
use super::{BuildError, Startup};
use crate::config::Config;
use runner::NodeRunner;
pub use runner::{Executable, Work};

pub const RESTART_KEYS: &[&str] = &[];

/// The directory of schedules in the state directory.
const DIRECTORY: &str = "schedule";

pub type Schedule = Schedules<NodeRunner>;

#[derive(Debug, thiserror::Error)]
#[error("cannot open the schedules of this node")]
struct ScheduleError(#[from] OpenError);

pub async fn build(
    startup: Startup<'_>,
    journal: &Journal,
    cells: &Cells,
    services: &Services,
) -> Result<Schedule, BuildError> {
    let runner = NodeRunner::new(cells, services, &journal.service_events);
    let directory = startup.state.path().join(DIRECTORY);
    Ok(Schedules::open(&directory, runner).map_err(ScheduleError)?)
}

pub fn reload(_: &Schedule, _: &Config, _: &Config) {}

/// Executables run on; the next daemon takes them over.
pub async fn stop(schedules: &Schedule) {
    schedules.hold(true);
    schedules.flush().await;
}
