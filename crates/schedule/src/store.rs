//! Schedules on disk: one record each, written in order by one thread.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use mainstay_error_chain::chain;
use mainstay_records::{RecordError, encode, is_temporary, read, sync_directory, write_durable};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tracing::warn;

use crate::engine::{Begun, FinishedRun};
use crate::{Entry, ScheduleName};

const VERSION: u64 = 1;
const SUFFIX: &str = ".json";
/// Commands and environments may hold secrets.
const PRIVATE_MODE: u32 = 0o600;

/// A schedule as stored.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(bound = "W: Serialize + DeserializeOwned")]
pub(crate) struct Record<W> {
    pub(crate) entry: Entry<W>,
    pub(crate) enabled: bool,
    /// Unix nanoseconds of its creation, from which intervals count.
    pub(crate) anchor: i64,
    /// Unix nanoseconds up to which no run is owed.
    pub(crate) considered: i64,
    #[serde(default)]
    pub(crate) running: Option<Begun>,
    /// The latest first.
    #[serde(default)]
    pub(crate) runs: Vec<FinishedRun>,
    #[serde(default)]
    pub(crate) skipped: u64,
    #[serde(default)]
    pub(crate) missed: u64,
}

#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    #[error("cannot use the directory of schedules {}", path.display())]
    Directory { path: PathBuf, source: io::Error },
    #[error("cannot start the thread that writes schedules")]
    Thread(#[source] io::Error),
    #[error("cannot create a timer of the system's clock")]
    Clock(#[source] io::Error),
}

enum Job {
    Write {
        name: ScheduleName,
        record: Vec<u8>,
    },
    Remove {
        name: ScheduleName,
    },
    /// Everything before is done. The result is that of the last write of the name.
    Done {
        name: Option<ScheduleName>,
        done: oneshot::Sender<io::Result<()>>,
    },
}

#[derive(Debug)]
pub(crate) struct Store {
    jobs: mpsc::Sender<Job>,
}

impl Store {
    /// Opens the directory and reads its records; one that cannot be read is left as it is.
    pub(crate) fn open<W>(directory: &Path) -> Result<(Self, Vec<Record<W>>), OpenError>
    where
        W: Serialize + DeserializeOwned,
    {
        let unusable = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(unusable)?;
        let mut records = Vec::new();
        for entry in fs::read_dir(directory).map_err(unusable)? {
            let path = entry.map_err(unusable)?.path();
            let name = path.file_name().unwrap_or_default();
            if is_temporary(name) {
                // Left by a daemon that was killed while it wrote.
                let _ = fs::remove_file(&path);
                continue;
            }
            let stem = name.to_str().and_then(|name| name.strip_suffix(SUFFIX));
            let record: Result<Record<W>, RecordError> = read(&path, VERSION);
            match record {
                Ok(record) if stem == Some(&record.entry.name.to_string()) => records.push(record),
                Ok(_) => {
                    warn!(path = %path.display(), "schedule ignored: its name is not its file's")
                }
                Err(why) => warn!(error = chain(&why), "schedule ignored"),
            }
        }
        let (jobs, work) = mpsc::channel();
        let directory = directory.to_owned();
        std::thread::Builder::new()
            .name("schedules".to_owned())
            .spawn(move || write_all(&directory, work))
            .map_err(OpenError::Thread)?;
        Ok((Self { jobs }, records))
    }

    /// Queues a record, which replaces the one before.
    pub(crate) fn write<W>(&self, record: &Record<W>)
    where
        W: Serialize + DeserializeOwned,
    {
        match encode(record, VERSION) {
            Ok(bytes) => self.send(Job::Write {
                name: record.entry.name.clone(),
                record: bytes,
            }),
            Err(why) => warn!(error = chain(&why), "cannot encode a schedule"),
        }
    }

    pub(crate) fn remove(&self, name: &ScheduleName) {
        self.send(Job::Remove { name: name.clone() });
    }

    /// Waits until everything queued before is on disk, and returns the error of the record's last
    /// write, once.
    pub(crate) async fn written(&self, name: Option<&ScheduleName>) -> io::Result<()> {
        let (done, written) = oneshot::channel();
        self.send(Job::Done {
            name: name.cloned(),
            done,
        });
        written.await.unwrap_or(Ok(()))
    }

    fn send(&self, job: Job) {
        // Fails only when the thread is gone, with the process.
        let _ = self.jobs.send(job);
    }
}

fn write_all(directory: &Path, work: mpsc::Receiver<Job>) {
    let path = |name: &ScheduleName| directory.join(format!("{name}{SUFFIX}"));
    let mut failed = HashMap::new();
    for job in work {
        let (done, name) = match job {
            Job::Write { name, record } => {
                (write_durable(&path(&name), &record, PRIVATE_MODE), name)
            }
            Job::Remove { name } => {
                let removed = match fs::remove_file(path(&name)) {
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                    removed => removed,
                };
                (removed.and_then(|()| sync_directory(directory)), name)
            }
            Job::Done { name, done } => {
                let error = name.and_then(|name| failed.remove(&name));
                // The caller may have gone.
                let _ = done.send(error.map_or(Ok(()), Err));
                continue;
            }
        };
        if let Err(error) = done {
            warn!(schedule = %name, %error, "cannot write a schedule to disk");
            failed.insert(name, error);
        } else {
            failed.remove(&name);
        }
    }
}
