//! The work of schedules: executables in cells, and services.

use mainstay_cells::{
    CellError, CellName, CellSpec, Cells, ExecutableName, ExecutableSpec, ExitStatus, FoundRun,
    Run, StopOptions,
};
use mainstay_error_chain::chain;
use mainstay_journal::Timestamp;
use mainstay_schedule::{Begun, Change, Ended, Runner};
use mainstay_supervisor::Supervisor;
use serde::{Deserialize, Serialize};

use super::events::publish;
use crate::engines::cells::exit_status;
use crate::service_events::ServiceEvents;

/// The work of a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Work {
    Executable(Box<Executable>),
    Service { name: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Executable {
    pub cell: CellName,
    pub name: ExecutableName,
    /// Whether to allocate the cell if it does not exist.
    pub allocate: bool,
    pub spec: ExecutableSpec,
}

pub struct NodeRunner {
    cells: Cells,
    services: Supervisor,
    events: ServiceEvents,
}

impl NodeRunner {
    pub(super) fn new(cells: &Cells, services: &Supervisor, events: &ServiceEvents) -> Self {
        Self {
            cells: cells.clone(),
            services: services.clone(),
            events: events.clone(),
        }
    }

    async fn start_executable(&self, it: &Executable) -> Result<Run, CellError> {
        let start = || {
            let (cell, name) = (it.cell.clone(), it.name.clone());
            self.cells.start(cell, name, it.spec.clone())
        };
        match start().await {
            Err(CellError::NoSuchCell { .. }) if it.allocate => {
                let allocated = self.cells.allocate(it.cell.clone(), CellSpec::default());
                match allocated.await {
                    // Allocated by somebody else meanwhile.
                    Ok(_) | Err(CellError::CellExists { .. }) => start().await,
                    Err(error) => Err(error),
                }
            }
            started => started,
        }
    }

    /// Finds a run that may be over by now.
    fn find(&self, begun: &Begun) -> Option<FoundRun> {
        let found = self.cells.find_run(begun.pid)?;
        (found.run.started == begun.started).then_some(found)
    }
}

impl Runner for NodeRunner {
    type Work = Work;

    async fn start(&self, work: &Work) -> Result<Begun, String> {
        match work {
            Work::Executable(it) => {
                let run = self.start_executable(it).await;
                run.map(begun).map_err(|error| chain(&error))
            }
            Work::Service { name } => {
                let started = self.services.start(name).await;
                started.map_err(|error| chain(&error))?;
                Ok(Begun {
                    pid: 0,
                    started: Timestamp::now().as_nanos(),
                })
            }
        }
    }

    fn running(&self, work: &Work) -> Option<Begun> {
        let Work::Executable(it) = work else {
            return None;
        };
        let cells = self.cells.list();
        let cell = cells.iter().find(|status| status.cell.name == it.cell)?;
        let mut executables = cell.executables.iter();
        let record = executables.find(|record| record.name == it.name)?;
        record.run.end.is_none().then(|| begun(record.run))
    }

    async fn until_ended(&self, work: &Work, begun: &Begun) -> Ended {
        let lost = || Ended {
            at: Timestamp::now().as_nanos(),
            succeeded: false,
            result: "ended with its cell, exit code unknown".to_owned(),
        };
        match work {
            Work::Service { .. } => Ended {
                at: begun.started,
                succeeded: true,
                result: "service started".to_owned(),
            },
            Work::Executable(_) => match self.find(begun) {
                Some(found) => {
                    let run = self.cells.until_ended(&found).await;
                    run.end.map_or_else(lost, |end| Ended {
                        at: end.at,
                        succeeded: end.status == ExitStatus::Exited(0),
                        result: exit_status(end.status),
                    })
                }
                None => lost(),
            },
        }
    }

    async fn stop(&self, work: &Work) -> Result<(), String> {
        let Work::Executable(it) = work else {
            // Other reasons than the schedule may keep a service up.
            return Ok(());
        };
        let (cell, name) = (it.cell.clone(), it.name.clone());
        let stopped = self.cells.stop(cell, Some(name), StopOptions::default());
        match stopped.await {
            Ok(_) | Err(CellError::NoSuchCell { .. } | CellError::NoSuchExecutable { .. }) => {
                Ok(())
            }
            Err(error) => Err(chain(&error)),
        }
    }

    fn publish(&self, change: Change) {
        publish(&self.events, change);
    }
}

fn begun(run: Run) -> Begun {
    Begun {
        pid: run.pid,
        started: run.started,
    }
}
