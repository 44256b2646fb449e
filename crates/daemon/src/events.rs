//! What is told to the events journal: the states of the daemon's own service, and the lives of
//! executables in cells.

use mainstay_api::machine::{ServiceHealth, ServiceStateEvent, service_state_event::Action};
use mainstay_cells::{CellEvent, CellEvents, ExitStatus};
use mainstay_journal::EventStore;
use prost::{Message, Name};
use tracing::error;

/// The id of the daemon's own service.
pub const SERVICE: &str = "mainstay";

#[derive(Debug, Clone)]
pub struct DaemonEvents {
    store: EventStore,
}

impl DaemonEvents {
    pub fn new(store: EventStore) -> Self {
        Self { store }
    }

    /// Blocks for one small write.
    pub fn state(&self, action: Action, message: &str) {
        let healthy = matches!(action, Action::Running);
        let event = ServiceStateEvent {
            service: SERVICE.to_owned(),
            action: action.into(),
            message: message.to_owned(),
            health: Some(ServiceHealth {
                unknown: false,
                healthy,
                ..ServiceHealth::default()
            }),
        };
        publish(&self.store, &event);
    }
}

fn publish(store: &EventStore, event: &ServiceStateEvent) {
    let kind = ServiceStateEvent::full_name();
    if let Err(why) = store.publish(&kind, &event.encode_to_vec()) {
        // A full disk must not stop the daemon from doing what it can do.
        error!(error = %why, "an event could not be kept");
    }
}

/// Executables in cells as services called `<cell>/<executable>`.
#[derive(Debug)]
pub struct CellsToEvents {
    store: EventStore,
}

impl CellsToEvents {
    pub fn new(store: EventStore) -> Self {
        Self { store }
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
                (cell, executable, action, describe(status))
            }
        };
        let running = action == Action::Running;
        let event = ServiceStateEvent {
            service: format!("{cell}/{executable}"),
            action: action.into(),
            message,
            health: Some(ServiceHealth {
                unknown: running,
                healthy: running,
                ..ServiceHealth::default()
            }),
        };
        publish(&self.store, &event);
    }
}

/// How an executable ended, in words.
pub fn describe(status: ExitStatus) -> String {
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
