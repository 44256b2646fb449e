//! Reading of all logs below one root.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::directory::{LogDirectory, check_name};
use super::error::LogError;
use super::files::Files;
use super::follow::Followers;
use super::foreign::ForeignLog;
use super::query::LogQuery;
use super::reader::Reader;
use super::stream::LogStream;

/// The logs of one root. Cheap to clone; all clones share one inotify instance.
#[derive(Clone, Debug)]
pub struct LogStore {
    root: PathBuf,
    followers: Followers,
}

impl LogStore {
    /// Opens the root, creating it if it does not exist.
    pub fn open(root: &Path) -> Result<Self, LogError> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(root)
            .map_err(|source| LogError::Open {
                path: root.to_owned(),
                source,
            })?;
        Ok(Self {
            root: root.to_owned(),
            followers: Followers::new(root),
        })
    }

    /// Returns the names of all logs, sorted. Blocks on the disk.
    pub fn sources(&self) -> Result<Vec<String>, LogError> {
        let list_error = |source| LogError::List {
            path: self.root.clone(),
            source,
        };
        let mut names = Vec::new();
        for entry in self.root.read_dir().map_err(list_error)? {
            let entry = entry.map_err(list_error)?;
            let name = entry.file_name().into_string();
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            names.extend(
                name.ok()
                    .filter(|name| is_directory && check_name(name).is_ok()),
            );
        }
        names.sort_unstable();
        Ok(names)
    }

    /// True if the log exists. Blocks on the disk.
    pub fn exists(&self, source: &str) -> bool {
        check_name(source).is_ok()
            && self
                .root
                .join(source)
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_dir())
    }

    /// Creates a log that is not written yet, so that it can be followed. Blocks on the disk.
    pub fn create(&self, source: &str) -> Result<(), LogError> {
        LogDirectory::open_or_create(&self.root, source).map(drop)
    }

    /// Opens a log for reading. Without `follow` the stream ends where the log ends now.
    pub async fn read(&self, source: &str, query: LogQuery) -> Result<LogStream, LogError> {
        let (store, log) = (self.clone(), source.to_owned());
        spawn_blocking(move || store.start_reading(&log, query))
            .await
            .map_err(|_| LogError::Interrupted {
                log: source.to_owned(),
            })?
    }

    /// Opens a log file of another program, in CRI format or plain text, across its rotation by
    /// renaming.
    pub async fn read_file(&self, path: &Path, query: LogQuery) -> Result<LogStream, LogError> {
        let (store, file) = (self.clone(), path.to_owned());
        spawn_blocking(move || store.start_reading_file(&file, query))
            .await
            .map_err(|_| LogError::Interrupted {
                log: path.display().to_string(),
            })?
    }

    fn start_reading(&self, log: &str, query: LogQuery) -> Result<LogStream, LogError> {
        let directory = LogDirectory::open(&self.root, log)?;
        self.start(Files::Own(directory), Path::new(log), query)
    }

    fn start_reading_file(&self, path: &Path, query: LogQuery) -> Result<LogStream, LogError> {
        let log = ForeignLog::open(path)?;
        let directory = log.directory().to_owned();
        self.start(Files::Foreign(log), &directory, query)
    }

    fn start(
        &self,
        files: Files,
        directory: &Path,
        query: LogQuery,
    ) -> Result<LogStream, LogError> {
        let mut follower = None;
        if query.follow {
            // Before the first read, so that no later write is missed.
            let joined = self.followers.join(directory);
            follower = Some(joined.map_err(|source| LogError::Watch {
                log: files.name().to_owned(),
                source,
            })?);
        }
        let reader = Reader::open(files, query)?;
        Ok(LogStream::new(reader, follower, query.until))
    }
}
