//! Publishes starts and exits of executables as events of services called `<cell>/<executable>`.

use mainstay_api::machine::service_state_event::Action;
use mainstay_api::machine::{ServiceHealth, ServiceStateEvent};
use mainstay_cells::{CellEvent, CellEvents, ExitStatus};

use crate::service_events::ServiceEvents;
use crate::workloads::ExecutableId;

#[derive(Debug)]
pub struct CellsToEvents(ServiceEvents);

impl CellsToEvents {
    pub fn new(events: ServiceEvents) -> Self {
        Self(events)
    }
}

impl CellEvents for CellsToEvents {
    fn publish(&self, event: CellEvent) {
        let (cell, executable, action, message) = match event {
            CellEvent::Started {
                cell,
                executable,
                run,
            } => {
                let message = format!("started with pid {}", run.pid);
                (cell, executable, Action::Running, message)
            }
            CellEvent::Ended {
                cell,
                executable,
                status,
                ..
            } => {
                let action = match status {
                    ExitStatus::Exited(0) => Action::Finished,
                    _ => Action::Failed,
                };
                (cell, executable, action, exit_status(status))
            }
        };
        let running = action == Action::Running;
        self.0.publish(&ServiceStateEvent {
            service: ExecutableId { cell, executable }.to_string(),
            action: action.into(),
            message,
            health: Some(ServiceHealth {
                unknown: running,
                healthy: running,
                ..ServiceHealth::default()
            }),
        });
    }
}

/// The exit status of an executable as text.
pub fn exit_status(status: ExitStatus) -> String {
    match status {
        ExitStatus::Exited(code) => format!("exited with code {code}"),
        ExitStatus::Killed {
            signal,
            oom_killed: true,
        } => format!("killed with signal {signal}: out of memory"),
        ExitStatus::Killed { signal, .. } => format!("killed with signal {signal}"),
        ExitStatus::Lost => "ended with its cell, exit code unknown".to_owned(),
    }
}
