//! The state transition of an executable: a record that is newer than the known one is applied.

use super::cell::{Cell, Phase, Published, State};
use super::event_cursor::CursorEntry;
use super::events::events_since;
use super::{Inner, lock};
use crate::record::ExecutableRecord;

impl Inner {
    /// Applies a record and publishes its new events; ignores a record that is not newer than the
    /// known one. Blocks on the disk.
    pub(super) fn apply_record(&self, cell: &Cell, record: ExecutableRecord) {
        let mut state = cell.state();
        if state.closed || state.phase == Phase::Gone || cell.unreadable.is_some() {
            return;
        }
        // Of an earlier cell of that name. Shims of before versions do not say of which.
        if record
            .allocated
            .is_some_and(|allocated| allocated != cell.record.allocated)
        {
            return;
        }
        let known = state.executables.get(&record.name);
        let age = |record: &ExecutableRecord| (record.runs, record.run.end.is_some());
        if known.is_some_and(|known| age(known) >= age(&record)) {
            return;
        }
        // Published before a caller can act on it: the next run would hide the end of this one.
        self.publish(cell, &mut state, &record);
        state
            .executables
            .insert(record.name.clone(), Box::new(record));
        drop(state);
        cell.changed.notify_waiters();
    }

    fn publish(&self, cell: &Cell, state: &mut State, record: &ExecutableRecord) {
        let now = Published::of(record);
        let published = state.published.get(&record.name).copied();
        if published == Some(now) {
            return;
        }
        for event in events_since(published, record) {
            self.events.publish(event);
        }
        state.published.insert(record.name.clone(), now);
        if state.is_being_freed() {
            return;
        }
        let entry = CursorEntry {
            cell: cell.name().clone(),
            allocated: cell.record.allocated,
            executable: record.name.clone(),
            published: now,
        };
        if let Err(error) = lock(&self.event_cursor).append(&entry) {
            tracing::warn!(
                cell = %cell.name(), %error,
                "cannot persist the event cursor; events may be published twice"
            );
        }
    }
}
