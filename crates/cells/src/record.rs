//! Records of cells and executables on disk.
//!
//! A cell record is written with fsync: a cell exists until it is freed, also across power loss. An
//! executable record is a runtime record: no process survives power loss, so it only has to survive
//! the daemon and the shim, and is renamed into place without fsync.
//!
//! Both carry the major version of their format and may move (to a tmpfs, with a copy written behind
//! to the state directory) without another migration: a record names its cell and, by `allocated`,
//! which cell of that name, so a stale copy is recognised; and the newer of two copies is the one
//! with the later run, which is the order that the engine applies records in.

use std::fs;
use std::io;
use std::path::Path;
#[cfg(test)]
use std::path::PathBuf;
use std::thread;

use mainstay_journal::Timestamp;
use mainstay_records::RecordError;
use serde::{Deserialize, Serialize};

use crate::name::{CellName, ExecutableName};
use crate::spec::{CellSpec, ExecutableSpec};

/// The format version of cell records.
const CELL_VERSION: u64 = 1;
/// The format version of executable records.
const EXECUTABLE_VERSION: u64 = 1;
/// For root alone: a spec may contain secrets in its environment.
pub(crate) const PRIVATE: u32 = 0o600;

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
    /// [`CellRecord::allocated`] of its cell; missing in records of shims before versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocated: Option<i64>,
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

/// Writes a cell record so that it survives power loss, its directory included.
pub(crate) fn write_cell(path: &Path, record: &CellRecord) -> io::Result<()> {
    let bytes = mainstay_records::encode(record, CELL_VERSION)?;
    let write = || mainstay_records::write_durable(path, &bytes, PRIVATE);
    let Some(cells) = path.parent().and_then(Path::parent) else {
        return write();
    };
    // The directory of the cell is new: its entry must be on disk too. At the same time: the device
    // flushes its cache for each, and for both at once.
    let sync = || mainstay_records::sync_directory(cells);
    thread::scope(
        |scope| match thread::Builder::new().spawn_scoped(scope, sync) {
            Ok(syncing) => {
                write()?;
                let synced = syncing.join();
                synced.unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
            }
            Err(_) => write().and_then(|()| sync()),
        },
    )
}

/// Writes a cell record by rename, without fsync.
pub(crate) fn write_runtime_cell(path: &Path, record: &CellRecord) -> io::Result<()> {
    let bytes = mainstay_records::encode(record, CELL_VERSION)?;
    mainstay_records::write_runtime(path, &bytes)
}

/// Writes an executable record by rename, without fsync: a start does not wait for the disk.
pub(crate) fn write_executable(path: &Path, record: &ExecutableRecord) -> io::Result<()> {
    let bytes = mainstay_records::encode(record, EXECUTABLE_VERSION)?;
    mainstay_records::write_runtime(path, &bytes)
}

pub(crate) fn read_cell(path: &Path) -> Result<CellRecord, RecordError> {
    mainstay_records::read(path, CELL_VERSION)
}

/// Reads an executable record: the last complete JSON document of the file.
///
/// Today's shims replace the file. One document per line is accepted as well, with a torn last line
/// ignored, so that a later shim may append the end of a run instead.
pub(crate) fn read_executable(path: &Path) -> Result<ExecutableRecord, RecordError> {
    let bytes = fs::read(path).map_err(|source| {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => RecordError::NotFound { path },
            _ => RecordError::Unreadable { path, source },
        }
    })?;
    let decode = |bytes: &[u8]| mainstay_records::decode(path, bytes, EXECUTABLE_VERSION);
    let whole = decode(&bytes);
    if !matches!(whole, Err(RecordError::Corrupt { .. })) {
        return whole;
    }
    let mut lines = bytes.trim_ascii_end().rsplit(|byte| *byte == b'\n');
    let last_two = [lines.next(), lines.next()].into_iter().flatten();
    let mut documents = last_two.map(decode);
    documents
        .find(|document| !matches!(document, Err(RecordError::Corrupt { .. })))
        .unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(path: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/it/fixtures")
            .join(path)
    }

    /// Every format that was ever released stays readable.
    #[test]
    fn records_without_a_version_are_read_as_version_1() {
        for (directory, generation) in [
            ("unversioned", None),
            ("v1", Some(1_794_962_209_786_250_119)),
        ] {
            let cell = read_cell(&fixture(&format!("{directory}/cells/web/cell.json"))).unwrap();
            assert_eq!(cell.name.as_str(), "web");
            assert_eq!(cell.allocated, 1_794_962_209_786_250_119);
            assert_eq!(cell.spec.hostname.as_deref(), Some("front"));
            assert_eq!(cell.spec.limits.pids, Some(100));
            let job = fixture(&format!("{directory}/executables/web_job.json"));
            let job = read_executable(&job).unwrap();
            assert_eq!((job.runs, job.earlier.len()), (2, 1));
            let killed = ExitStatus::Killed {
                signal: 9,
                oom_killed: false,
            };
            assert_eq!(job.run.end.unwrap().status, killed);
            assert_eq!(job.earlier[0].end.unwrap().status, ExitStatus::Exited(7));
            assert_eq!(job.allocated, generation);
            let server = fixture(&format!("{directory}/executables/web_server.json"));
            let server = read_executable(&server).unwrap();
            assert_eq!(server.spec.uid, Some(1000));
            assert_eq!(server.spec.seccomp.as_str(), "default");
        }
    }

    #[test]
    fn records_are_written_as_the_fixtures_of_version_1() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        for name in ["cells/web/cell.json", "cells/web.worker/cell.json"] {
            let golden = fixture(&format!("v1/{name}"));
            write_cell(&path, &read_cell(&golden).unwrap()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), fs::read(&golden).unwrap());
        }
        for name in ["web_job", "web_server", "web.worker_ok"] {
            let golden = fixture(&format!("v1/executables/{name}.json"));
            write_executable(&path, &read_executable(&golden).unwrap()).unwrap();
            assert_eq!(fs::read(&path).unwrap(), fs::read(&golden).unwrap());
        }
    }

    #[test]
    fn a_newer_record_is_refused_with_its_version() {
        for name in ["cells/web/cell.json", "executables/web_job.json"] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("record.json");
            let text = fs::read_to_string(fixture(&format!("v1/{name}"))).unwrap();
            let newer = text.replacen("\"version\":1", "\"version\":2", 1);
            fs::write(&path, newer).unwrap();
            let error = match name {
                "cells/web/cell.json" => read_cell(&path).map(drop),
                _ => read_executable(&path).map(drop),
            };
            let error = error.unwrap_err();
            assert!(
                matches!(error, RecordError::Newer { found: 2, .. }),
                "{error}"
            );
        }
    }

    #[test]
    fn the_last_complete_document_of_an_executable_record_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("record.json");
        let ended = fs::read(fixture("v1/executables/web_job.json")).unwrap();
        let earlier = fs::read(fixture("unversioned/executables/web_server.json")).unwrap();
        let torn = &ended[..ended.len() / 2];
        for (lines, expected) in [
            ([&earlier[..], b"\n", &ended, b"\n"].concat(), "job"),
            ([&earlier[..], b"\n", &ended].concat(), "job"),
            ([&earlier[..], b"\n", torn].concat(), "server"),
        ] {
            fs::write(&path, lines).unwrap();
            assert_eq!(read_executable(&path).unwrap().name.as_str(), expected);
        }
        fs::write(&path, [torn, b"\n", torn].concat()).unwrap();
        assert!(matches!(
            read_executable(&path),
            Err(RecordError::Corrupt { .. })
        ));
    }
}
