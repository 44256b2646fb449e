//! What is told of executables: that they have started, and how they ended. Each once, also over
//! a restart of the daemon; should it die between telling and noting that it has, twice.

use std::fmt;

use super::cell::{Cell, Phase, State, Told};
use super::notes::Note;
use super::{Inner, lock};
use crate::name::{CellName, ExecutableName};
use crate::record::{ExecutableRecord, HowEnded, Run};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CellEvent {
    Started {
        cell: CellName,
        executable: ExecutableName,
        run: Run,
    },
    Ended {
        cell: CellName,
        executable: ExecutableName,
        run: Run,
        how: HowEnded,
    },
}

/// Who is told. May block for a small write.
pub trait CellEvents: Send + Sync + fmt::Debug + 'static {
    fn tell(&self, event: CellEvent);
}

impl Inner {
    /// Takes over what the shim has written, and tells what is new in it; what is older than what
    /// is known changes nothing. Blocks on the disk.
    pub(super) fn take(&self, cell: &Cell, record: ExecutableRecord) {
        let mut state = cell.state();
        if state.closed || state.phase == Phase::Gone {
            return;
        }
        let known = state.executables.get(&record.name);
        let age = |record: &ExecutableRecord| (record.runs, record.run.end.is_some());
        if known.is_some_and(|known| age(known) >= age(&record)) {
            return;
        }
        // Told before anybody can act on it: the next run would hide the end of this one.
        self.tell(cell, &mut state, &record);
        state
            .executables
            .insert(record.name.clone(), Box::new(record));
        drop(state);
        cell.changed.notify_waiters();
    }

    fn tell(&self, cell: &Cell, state: &mut State, record: &ExecutableRecord) {
        let now = Told {
            runs: record.runs,
            ended: record.run.end.is_some(),
        };
        let told = state.told.get(&record.name).copied();
        if told == Some(now) {
            return;
        }
        // Of what was never told of, only what is: earlier runs are not news.
        let told = told.unwrap_or(Told {
            runs: record.runs.saturating_sub(1),
            ended: true,
        });
        for (number, run) in record.numbered_runs() {
            let (cell, executable) = (cell.name(), &record.name);
            if number > told.runs {
                self.events.tell(CellEvent::Started {
                    cell: cell.clone(),
                    executable: executable.clone(),
                    run: *run,
                });
            }
            let is_told = (number, true) <= (told.runs, told.ended);
            if let Some(end) = run.end.filter(|_| !is_told) {
                self.events.tell(CellEvent::Ended {
                    cell: cell.clone(),
                    executable: executable.clone(),
                    run: *run,
                    how: end.how,
                });
            }
        }
        state.told.insert(record.name.clone(), now);
        if state.is_being_freed() {
            return;
        }
        let note = Note {
            cell: cell.name().clone(),
            allocated: cell.record.allocated,
            executable: record.name.clone(),
            told: now,
        };
        if let Err(error) = lock(&self.notes).add(&note) {
            tracing::warn!(cell = %cell.name(), %error, "what was told of a cell is not noted");
        }
    }
}
