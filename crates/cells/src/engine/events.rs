//! What is told of executables: that they have started, and how they ended. Each once, also over
//! a restart of the daemon; should it die between telling and noting that it has, twice.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::{self, Write};

use super::Inner;
use super::cell::{Cell, Told};
use crate::name::{CellName, ExecutableName};
use crate::record::{HowEnded, Run};

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
    /// Tells what has not been told of an executable. Blocks on the disk.
    pub(super) fn tell(&self, cell: &Cell, name: &ExecutableName) {
        // Held to the end: two who look at once must not both tell.
        let mut state = cell.state();
        let Some(record) = state.executables.get(name) else {
            return;
        };
        let (runs, run) = (record.runs, record.run);
        let told = state.told.get(name).filter(|told| told.runs == runs);
        let now = Told {
            runs,
            ended: run.end.is_some(),
        };
        if told == Some(&now) {
            return;
        }
        if told.is_none() {
            self.events.tell(CellEvent::Started {
                cell: cell.name().clone(),
                executable: name.clone(),
                run,
            });
        }
        if let Some(end) = run.end {
            self.events.tell(CellEvent::Ended {
                cell: cell.name().clone(),
                executable: name.clone(),
                run,
                how: end.how,
            });
        }
        state.told.insert(name.clone(), now);
        let line = serde_json::to_vec(&(name, now)).map_err(io::Error::other);
        let noted = line.and_then(|mut line| {
            line.push(b'\n');
            let path = self.places.told(cell.name());
            File::options()
                .append(true)
                .create(true)
                .open(path)?
                .write_all(&line)
        });
        if let Err(error) = noted {
            tracing::warn!(cell = %cell.name(), %error, "what was told of a cell is not noted");
        }
    }

    /// What was told of the cell before the daemon started.
    pub(super) fn read_told(&self, cell: &CellName) -> BTreeMap<ExecutableName, Told> {
        let text = std::fs::read(self.places.told(cell)).unwrap_or_default();
        // The last line of a daemon that died may be torn.
        let lines = text.split(|byte| *byte == b'\n');
        lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect()
    }
}
