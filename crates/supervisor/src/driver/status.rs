//! Services as others see them.

use mainstay_cells::{CellName, ExecutableName};
use mainstay_journal::Timestamp;

use super::Supervisor;
use super::slot::HistoryEntry;
use crate::core::Status;
use crate::program::Placement;
use crate::{Operation, ServiceName};

/// A service and its recent history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceStatus {
    pub name: ServiceName,
    pub description: String,
    pub program: String,
    pub status: Status,
    /// Oldest first.
    pub history: Vec<HistoryEntry>,
    pub health_changed: Option<Timestamp>,
    pub has_health_check: bool,
    pub pid: Option<i32>,
    pub operations: Vec<Operation>,
    /// Where it runs in [`Supervisor::cells`], also before its first run.
    pub cell: CellName,
    pub executable: ExecutableName,
}

impl Supervisor {
    /// Lists all services in the order of their names.
    pub fn list(&self) -> Vec<ServiceStatus> {
        let state = self.0.state();
        let listed = state.core.list().filter_map(|(name, status)| {
            let definition = state.core.definition(name)?;
            let placement = Placement::of(name, definition)?;
            let slot = state.slots.get(name);
            Some(ServiceStatus {
                name: name.clone(),
                description: definition.description.clone(),
                program: definition.command.first().cloned().unwrap_or_default(),
                status,
                history: slot
                    .map(|slot| slot.history.iter().cloned().collect())
                    .unwrap_or_default(),
                health_changed: slot.and_then(|slot| slot.health_changed),
                has_health_check: definition.health.is_some(),
                pid: slot.and_then(|slot| Some(slot.process?.pid)),
                operations: definition.operations.iter().copied().collect(),
                cell: placement.cell,
                executable: placement.executable,
            })
        });
        listed.collect()
    }

    /// Finds one service by its name.
    pub fn find(&self, name: &str) -> Option<ServiceStatus> {
        // Few enough that a search is cheaper than a second way to describe one.
        let mut all = self.list().into_iter();
        all.find(|service| service.name.as_str() == name)
    }

    /// The name of the log of a service in the logs of [`Supervisor::cells`].
    pub fn log_key(&self, name: &str) -> Option<String> {
        let name: ServiceName = name.parse().ok()?;
        let state = self.0.state();
        let definition = state.core.definition(&name)?;
        let placement = Placement::of(&name, definition)?;
        Some(placement.executable.key(&placement.cell))
    }

    /// The names of all services, sorted.
    pub fn names(&self) -> Vec<String> {
        let state = self.0.state();
        state
            .core
            .list()
            .map(|(name, _)| name.to_string())
            .collect()
    }
}
