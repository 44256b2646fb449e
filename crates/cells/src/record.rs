//! Records of cells and executables on disk.
//!
//! Each file is replaced by rename: a reader sees the old record or the new one.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use mainstay_journal::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::name::{CellName, ExecutableName};
use crate::spec::{CellSpec, ExecutableSpec};

/// The record of a cell. The daemon writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellRecord {
    pub name: CellName,
    pub spec: CellSpec,
    /// Nanoseconds since the Unix epoch.
    pub allocated: i64,
}

/// The record of an executable. Its shim writes it at the start and at the end of each run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecutableRecord {
    pub cell: CellName,
    pub name: ExecutableName,
    pub spec: ExecutableSpec,
    /// The number of runs so far.
    pub runs: u64,
    pub run: Run,
    /// Earlier runs, the latest last, at most [`MAX_EARLIER_RUNS`].
    #[serde(default)]
    pub earlier: Vec<Run>,
}

/// One run of an executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The PID on the host.
    pub pid: i32,
    pub uid: u32,
    pub gid: u32,
    /// Not later than its first line of output; later than the last line of the run before.
    pub started: i64,
    pub end: Option<RunEnd>,
}

/// The end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunEnd {
    /// Not earlier than its last line of output.
    pub at: i64,
    #[serde(rename = "how")]
    pub status: ExitStatus,
}

/// The exit status of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitStatus {
    Exited(i32),
    Killed {
        signal: i32,
        #[serde(rename = "out_of_memory")]
        oom_killed: bool,
    },
    /// Ended with its shim or with the machine; the exit code is unknown.
    Lost,
}

/// The number of earlier runs that a record keeps.
const MAX_EARLIER_RUNS: usize = 16;

impl ExecutableRecord {
    /// Continues the record with the next run.
    pub fn again(self, spec: ExecutableSpec, run: Run) -> Self {
        let mut earlier = self.earlier;
        earlier.push(self.run);
        let surplus = earlier.len().saturating_sub(MAX_EARLIER_RUNS);
        earlier.drain(..surplus);
        Self {
            spec,
            runs: self.runs + 1,
            run,
            earlier,
            ..self
        }
    }

    /// The known runs with their numbers, the latest last.
    pub(crate) fn numbered_runs(&self) -> impl Iterator<Item = (u64, &Run)> {
        let all = self.earlier.iter().chain([&self.run]);
        let known = u64::try_from(self.earlier.len()).unwrap_or(u64::MAX);
        (self.runs.saturating_sub(known)..).zip(all)
    }

    /// The known runs, the latest first.
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

/// Replaces the record at `path` by rename.
pub(crate) fn write<T: Serialize>(path: &Path, record: &T) -> io::Result<()> {
    replace(path, &serde_json::to_vec(record).map_err(io::Error::other)?)
}

/// Replaces the file at `path` by rename.
pub(crate) fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = temporary(path);
    let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, path));
    if written.is_err() {
        let _ = fs::remove_file(&new);
    }
    written
}

/// The temporary file that is renamed to `path`.
pub(crate) fn temporary(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(TEMPORARY);
    PathBuf::from(name)
}

/// The suffix of a temporary file; one that stays was left by a killed writer.
pub(crate) const TEMPORARY: &str = ".new";

pub(crate) fn read<T: DeserializeOwned>(path: &Path) -> io::Result<T> {
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}
