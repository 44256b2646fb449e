//! What is kept on disk of cells and executables. Not for power cuts, which end every cell
//! anyway, but for the daemon's death: each file is replaced as a whole, and a reader sees either.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_journal::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::name::{CellName, ExecutableName};
use crate::spec::{CellSpec, ExecutableSpec};

/// Written by the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellRecord {
    pub name: CellName,
    pub spec: CellSpec,
    /// Nanoseconds since 1970.
    pub allocated: i64,
}

/// Written by the shim: when an executable starts, and when it has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutableRecord {
    pub cell: CellName,
    pub name: ExecutableName,
    pub spec: ExecutableSpec,
    /// How often it was started.
    pub runs: u64,
    pub run: Run,
    /// Runs before this one, the latest last, as far as they are kept.
    #[serde(default)]
    pub earlier: Vec<Run>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// On the host.
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
    /// Not later than its first line of output, and later than the last of the run before.
    pub started: i64,
    pub end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// Not earlier than its last line of output.
    pub at: i64,
    pub how: HowEnded,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HowEnded {
    Exited(i32),
    Killed {
        signal: i32,
        out_of_memory: bool,
    },
    /// With the first process of its cell, or with the machine: nobody was there to see it.
    Lost,
}

/// How many earlier runs a record tells of.
const MOST_EARLIER: usize = 16;

impl ExecutableRecord {
    /// The record of the next run.
    pub fn again(self, spec: ExecutableSpec, run: Run) -> Self {
        let mut earlier = self.earlier;
        earlier.push(self.run);
        let surplus = earlier.len().saturating_sub(MOST_EARLIER);
        earlier.drain(..surplus);
        Self {
            spec,
            runs: self.runs + 1,
            run,
            earlier,
            ..self
        }
    }

    /// All runs that are known, the latest last, each with how often it had been started by then.
    pub(crate) fn numbered_runs(&self) -> impl Iterator<Item = (u64, &Run)> {
        let all = self.earlier.iter().chain([&self.run]);
        let known = u64::try_from(self.earlier.len()).unwrap_or(u64::MAX);
        (self.runs.saturating_sub(known)..).zip(all)
    }

    /// All runs that are known, the latest first.
    pub fn all_runs(&self) -> impl Iterator<Item = &Run> {
        [&self.run].into_iter().chain(self.earlier.iter().rev())
    }
}

impl Run {
    pub fn started(&self) -> Timestamp {
        Timestamp::from_nanos(self.started)
    }

    pub fn is_running(&self) -> bool {
        self.end.is_none()
    }
}

/// Replaces `path` as a whole.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(record).map_err(io::Error::other)?)
}

/// The same, with bytes that are ready.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = temporary(path);
    let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// What is written first and then called `path`.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

/// The ending of a file that is being written; one that stayed was never finished.
pub(crate) const TEMPORARY: &str = ".new";

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
