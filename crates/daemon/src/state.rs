//! The one directory that holds everything the node keeps, and the lock that makes it one
//! daemon's alone.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};

#[derive(Debug, thiserror::Error)]
pub enum StateError {
    #[error("cannot use state directory {}{}", path.display(), hint(source))]
    Unusable {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error(
        "another mainstay ({}) already serves state directory {}; stop it first, or choose \
         another directory with --state DIR",
        holder(*pid), path.display()
    )]
    InUse { path: PathBuf, pid: Option<u32> },
    #[error(
        "state directory {} can be written by others (mode {mode:04o}); chmod go-w {}",
        path.display(), path.display()
    )]
    WritableByOthers { path: PathBuf, mode: u32 },
    #[error(
        "state directory {} belongs to uid {owner}, but this is uid {own}; run as that user or \
         choose another directory with --state DIR",
        path.display()
    )]
    NotOurs { path: PathBuf, owner: u32, own: u32 },
}

fn holder(pid: Option<u32>) -> String {
    pid.map_or_else(|| "pid unknown".to_owned(), |pid| format!("pid {pid}"))
}

fn hint(error: &std::io::Error) -> &'static str {
    match error.kind() {
        std::io::ErrorKind::PermissionDenied => {
            "; as an ordinary user choose a directory of your own with --state DIR"
        }
        std::io::ErrorKind::ReadOnlyFilesystem => "; it must be on a writable file system",
        std::io::ErrorKind::StorageFull => "; make room on its file system first",
        _ => "",
    }
}

/// A state directory that is ours for as long as this value lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    _lock: File,
}

impl StateDir {
    pub fn open(path: &Path) -> Result<Self, StateError> {
        let unusable = |source: std::io::Error| StateError::Unusable {
            path: path.to_owned(),
            source,
        };
        make_dir(path).map_err(unusable)?;
        let metadata = std::fs::metadata(path).map_err(unusable)?;
        let own = rustix::process::geteuid().as_raw();
        if metadata.uid() != own {
            return Err(StateError::NotOurs {
                path: path.to_owned(),
                owner: metadata.uid(),
                own,
            });
        }
        let mode = metadata.mode() & 0o7777;
        if mode & 0o022 != 0 {
            return Err(StateError::WritableByOthers {
                path: path.to_owned(),
                mode,
            });
        }
        let path = path.canonicalize().map_err(unusable)?;
        let run = path.join("run");
        make_dir(&run).map_err(unusable)?;
        // Sockets stand here: nobody else may even look.
        std::fs::set_permissions(&run, Permissions::from_mode(0o700)).map_err(unusable)?;
        let lock = lock(&run.join("lock")).map_err(unusable)?;
        match lock {
            Ok(lock) => Ok(Self { path, _lock: lock }),
            Err(pid) => Err(StateError::InUse { path, pid }),
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    pub fn client_config(&self) -> PathBuf {
        self.path.join("client.yaml")
    }

    pub fn socket(&self) -> PathBuf {
        self.path.join("run/mainstay.sock")
    }

    pub fn logs(&self) -> PathBuf {
        self.path.join("logs")
    }

    pub fn events(&self) -> PathBuf {
        self.path.join("events")
    }
}

fn make_dir(path: &Path) -> std::io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// The lock, or the pid of whoever holds it. The kernel drops it with its holder, however that
/// ends, so a stale one cannot exist.
fn lock(path: &Path) -> std::io::Result<Result<File, Option<u32>>> {
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            file.set_len(0)?;
            file.rewind()?;
            writeln!(file, "{}", std::process::id())?;
            Ok(Ok(file))
        }
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            (&file).take(32).read_to_string(&mut pid)?;
            Ok(Err(pid.trim().parse().ok()))
        }
        Err(error) => Err(error.into()),
    }
}

/// The pid of the daemon that serves `state` now, if one does.
pub fn serving_pid(state: &Path) -> Option<u32> {
    let file = File::open(state.join("run/lock")).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut pid = String::new();
            (&file).take(32).read_to_string(&mut pid).ok()?;
            pid.trim().parse().ok()
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_owner_is_refused_and_told_who_the_first_is() {
        let dir = tempfile::tempdir().unwrap();
        let first = StateDir::open(dir.path()).unwrap();
        let second = StateDir::open(dir.path()).unwrap_err();
        assert!(
            second
                .to_string()
                .contains(&format!("pid {}", std::process::id())),
            "{second}"
        );
        assert_eq!(serving_pid(dir.path()), Some(std::process::id()));
        drop(first);
        assert_eq!(serving_pid(dir.path()), None);
        StateDir::open(dir.path()).unwrap();
    }

    #[test]
    fn a_directory_others_can_write_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("chmod go-w"), "{error}");
    }
}
