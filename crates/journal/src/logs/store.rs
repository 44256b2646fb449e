//! All logs below one root, for reading.

use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use tokio::task::spawn_blocking;

use super::directory::{LogDirectory, check_name};
use super::error::LogError;
use super::follow::Followers;
use super::query::LogQuery;
use super::reader::Reader;
use super::stream::LogStream;

/// The logs of one root. Cheap to clone; all clones share what following needs.
#[derive(Clone, Debug)]
pub struct LogStore {
    root: PathBuf,
    followers: Followers,
}

impl LogStore {
    /// Opens the root, making it if need be.
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

    /// The names of all logs, sorted. Blocks on the disk.
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

    /// Whether there is such a log. Blocks on the disk.
    pub fn exists(&self, source: &str) -> bool {
        check_name(source).is_ok()
            && self
                .root
                .join(source)
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_dir())
    }

    /// Begins to read a log. Without `follow` the stream gives the log as it is now.
    pub async fn read(&self, source: &str, query: LogQuery) -> Result<LogStream, LogError> {
        let (store, log) = (self.clone(), source.to_owned());
        spawn_blocking(move || store.start_reading(&log, query))
            .await
            .map_err(|_| LogError::Interrupted {
                log: source.to_owned(),
            })?
    }

    fn start_reading(&self, log: &str, query: LogQuery) -> Result<LogStream, LogError> {
        let directory = LogDirectory::open(&self.root, log)?;
        let mut follower = None;
        if query.follow {
            // Before the first look at the files, so that nothing written after it goes unseen.
            let joined = self.followers.join(log);
            follower = Some(joined.map_err(|source| LogError::Watch {
                log: log.to_owned(),
                source,
            })?);
        }
        Ok(LogStream::new(
            Reader::open(directory, query)?,
            follower,
            query.until,
        ))
    }
}
