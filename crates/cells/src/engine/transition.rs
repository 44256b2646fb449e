//! The state transition of an executable: a record that is newer than the known one is applied.

use std::sync::Arc;

use super::Inner;
use super::cell::{Cell, Phase};
use crate::record::ExecutableRecord;

impl Inner {
    /// Applies a record and queues its new events; ignores a record that is not newer than the
    /// known one.
    pub(super) fn apply_record(&self, cell: &Arc<Cell>, record: ExecutableRecord) {
        let mut state = cell.state();
        if state.closed || state.phase == Phase::Gone {
            return;
        }
        let is_readable = cell.unreadable.is_none();
        // Of an earlier cell of that name. Shims of before versions do not say of which.
        if record
            .allocated
            .is_some_and(|allocated| is_readable && allocated != cell.record.allocated)
        {
            return;
        }
        let known = state.executables.get(&record.name);
        let age = |record: &ExecutableRecord| (record.runs, record.run.end.is_some());
        if known.is_some_and(|known| age(known) >= age(&record)) {
            return;
        }
        let name = record.name.clone();
        state.unreadable_executables.remove(&name);
        state.executables.insert(name.clone(), Arc::new(record));
        drop(state);
        // Of an unreadable cell it is not known which events were published.
        if is_readable {
            self.publisher.publish(cell, &name);
        }
        cell.changed.notify_waiters();
    }
}
