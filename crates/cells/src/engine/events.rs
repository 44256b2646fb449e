//! Events of executables: started and ended.
//!
//! Each is published once, also across a restart of the daemon; twice only if the daemon dies
//! between a publish and the write of the event cursor.

use std::fmt;

use super::cell::Published;
use crate::name::{CellName, ExecutableName};
use crate::record::{ExecutableRecord, ExitStatus, Run};

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
        status: ExitStatus,
    },
}

/// The receiver of events. May block for a small write.
pub trait CellEvents: Send + Sync + fmt::Debug + 'static {
    fn publish(&self, event: CellEvent);
}

impl Published {
    /// The point that a record has reached.
    pub(super) fn of(record: &ExecutableRecord) -> Self {
        Self {
            runs: record.runs,
            ended: record.run.end.is_some(),
        }
    }
}

/// The events between a published point and the record, in order.
///
/// Without a published point only the latest run counts: earlier ones happened before the daemon
/// knew of the executable.
pub(super) fn events_since(
    published: Option<Published>,
    record: &ExecutableRecord,
) -> Vec<CellEvent> {
    let published = published.unwrap_or(Published {
        runs: record.runs.saturating_sub(1),
        ended: true,
    });
    let mut events = Vec::new();
    for (number, run) in record.numbered_runs() {
        let (cell, executable) = (&record.cell, &record.name);
        if number > published.runs {
            events.push(CellEvent::Started {
                cell: cell.clone(),
                executable: executable.clone(),
                run: *run,
            });
        }
        let is_published = (number, true) <= (published.runs, published.ended);
        if let Some(end) = run.end.filter(|_| !is_published) {
            events.push(CellEvent::Ended {
                cell: cell.clone(),
                executable: executable.clone(),
                run: *run,
                status: end.status,
            });
        }
    }
    events
}
