//! Adoption at start: what an earlier supervisor left running, and what ended since.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, PoisonError};

use mainstay_cells::{CellName, ExecutableName, ExecutableRecord, ExecutableSpec, StopOptions};
use mainstay_error_chain::chain;

use super::Inner;
use super::effects::describe;
use super::slot::{Process, Slot};
use crate::core::{Ended, Found};
use crate::program::{self, Placement, place_of};
use crate::{Definition, ServiceName};

/// Defines the services for the first time.
pub fn adopt(inner: &Arc<Inner>, definitions: BTreeMap<ServiceName, Arc<Definition>>) {
    let mut records: BTreeMap<(CellName, ExecutableName), ExecutableRecord> = BTreeMap::new();
    let mut cells = BTreeSet::new();
    for cell in inner.cells.list() {
        cells.insert(cell.cell.name.clone());
        for record in cell.executables {
            records.insert((record.cell.clone(), record.name.clone()), record);
        }
    }
    let mut found = BTreeMap::new();
    let mut changed = Vec::new();
    {
        let mut state = inner.state();
        for (service, definition) in &definitions {
            let Some(placement) = Placement::of(service, definition) else {
                continue;
            };
            cells.remove(&placement.cell);
            let key = (placement.cell.clone(), placement.executable.clone());
            let Some(record) = records.remove(&key) else {
                continue;
            };
            let slot = state.slots.entry(service.clone()).or_default();
            let Some(left) = inner.found(service, &record, slot) else {
                continue;
            };
            if left == Found::Running && !is_of(&record, definition) {
                changed.push(service.clone());
            }
            slot.placement = Some(placement);
            found.insert(service.clone(), left);
        }
        let stopped = inner.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        for service in definitions.keys().filter(|name| stopped.contains(name)) {
            found.entry(service.clone()).or_insert(Found::Stopped);
        }
    }
    // Services that were removed meanwhile, or run elsewhere now; checks that were in progress.
    let shared = |(cell, _): &(CellName, ExecutableName)| place_of(cell).is_some();
    let stale: Vec<_> = records.into_keys().filter(shared).collect();
    cells.retain(|cell| place_of(cell).is_none());
    tokio::spawn(remove(Arc::clone(inner), stale, cells));

    inner.act(|core, now| core.define(definitions, found, now));
    for service in changed {
        inner.act(|core, _| core.restart(&service));
    }
}

async fn remove(
    inner: Arc<Inner>,
    executables: Vec<(CellName, ExecutableName)>,
    cells: BTreeSet<CellName>,
) {
    for (cell, executable) in executables {
        let one = Some(executable.clone());
        let stopped = inner.cells.stop(cell.clone(), one, StopOptions::default());
        let removed = match stopped.await {
            Ok(()) => inner.cells.forget(cell, executable.clone()).await,
            failed => failed,
        };
        if let Err(error) = removed {
            let error = chain(&error);
            tracing::warn!(service = %executable, error, "cannot remove an earlier service");
        }
    }
    for cell in cells {
        if let Err(error) = inner.cells.free(cell.clone()).await {
            let error = chain(&error);
            tracing::warn!(service = %cell, error, "cannot remove an earlier service");
        }
    }
}

impl Inner {
    /// The state that a record leaves a service in; `None` if it is as if it had never run.
    fn found(
        &self,
        service: &ServiceName,
        record: &ExecutableRecord,
        slot: &mut Slot,
    ) -> Option<Found> {
        let stopped = self.stopped.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = record.run.end else {
            slot.process = Some(Process::from(record.run));
            return Some(Found::Running);
        };
        if stopped.contains(service) {
            return Some(Found::Stopped);
        }
        let ended = Ended {
            succeeded: end.status == mainstay_cells::ExitStatus::Exited(0),
            reason: describe(end.status),
        };
        stopped
            .counts(record.run.started)
            .then_some(Found::Ended(ended))
    }
}

/// Returns whether a process runs as the definition says today.
fn is_of(record: &ExecutableRecord, definition: &Definition) -> bool {
    let now: Result<ExecutableSpec, _> = program::resolve(definition);
    now.is_ok_and(|now| now == record.spec)
}
