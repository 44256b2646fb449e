//! The record on disk. Its writer may be replaced: a forced sequence takes it from the one that it
//! preempts, whose late writes must not replace the new record.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_records::{RecordError, remove_temporaries_of, sync_directory, write_durable};

use crate::OpenError;
use crate::record::{FORMAT_VERSION, SequenceRecord};

/// The record of the sequence that ran last, if there is one.
type Found = Result<Option<SequenceRecord>, RecordError>;

const FILE: &str = "sequence.json";

/// The bound on one write; a disk that takes longer counts as failed.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub(crate) struct Store {
    path: PathBuf,
    /// The number of the current writer.
    writer: Arc<Mutex<u64>>,
}

/// The right to write the record, until the next writer is created.
#[derive(Debug, Clone)]
pub(crate) struct Writer {
    store: Store,
    number: u64,
}

impl Store {
    pub(crate) fn open(directory: &Path) -> Result<(Self, Found), OpenError> {
        use std::os::unix::fs::DirBuilderExt;
        let unusable = |source| OpenError::Directory {
            path: directory.to_owned(),
            source,
        };
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(unusable)?;
        remove_temporaries_of(directory, &[FILE]).map_err(unusable)?;
        let path = directory.join(FILE);
        let record = match Self::read(directory) {
            Ok(record) => Ok(Some(record)),
            Err(RecordError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        let store = Self {
            path,
            writer: Arc::default(),
        };
        Ok((store, record))
    }

    pub(crate) fn read(directory: &Path) -> Result<SequenceRecord, RecordError> {
        mainstay_records::read(&directory.join(FILE), FORMAT_VERSION)
    }

    /// Creates the only writer; earlier ones no longer write. A write of the last one that hangs
    /// does not block this.
    pub(crate) fn writer(&self) -> Writer {
        // A writer that is stuck on the disk holds the lock: numbers are unique all the same.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        Writer {
            store: self.clone(),
            number: NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed),
        }
    }
}

impl Writer {
    /// Writes the record such that it survives power loss.
    pub(crate) async fn write(&self, record: &SequenceRecord) -> io::Result<()> {
        let (writer, record) = (self.clone(), record.clone());
        bounded(move || writer.write_blocking(&record)).await
    }

    /// Blocks on the disk.
    pub(crate) fn write_blocking(&self, record: &SequenceRecord) -> io::Result<()> {
        let bytes = mainstay_records::encode(record, FORMAT_VERSION)?;
        self.as_current(|path| write_durable(path, &bytes, 0o600))
    }

    /// Removes the record, which needs no room on the disk.
    pub(crate) async fn remove(&self) {
        let writer = self.clone();
        let removed = bounded(move || {
            writer.as_current(|path| {
                std::fs::remove_file(path)?;
                sync_directory(path.parent().unwrap_or(Path::new("/")))
            })
        });
        match removed.await {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                tracing::error!(%error, "cannot remove the record of a sequence");
            }
            _ => {}
        }
    }

    fn as_current(&self, change: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
        let mut writer = (self.store.writer.lock()).unwrap_or_else(PoisonError::into_inner);
        if *writer > self.number {
            return Err(io::Error::other("another sequence has taken over"));
        }
        *writer = self.number;
        change(&self.store.path)
    }
}

async fn bounded(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> io::Result<()> {
    match tokio::time::timeout(WRITE_TIMEOUT, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(done)) => done,
        Ok(Err(_)) => Err(io::Error::other("the write panicked")),
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
