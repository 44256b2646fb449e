//! The state directory: everything the node keeps on disk, its format version, and the lock that
//! gives it to one daemon.
//!
//! A state directory of a newer major version is refused before anything in it is changed.

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::{Read, Seek, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use mainstay_records::{RecordError, remove_temporaries_of};
use rustix::fs::{FlockOperation, flock};
use rustix::process::{Pid, test_kill_process};
use serde::{Deserialize, Serialize};

/// How long the lock of a dead daemon may still be held.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// The format version of the state directory as a whole. It changes only when a build that knows
/// the version before could no longer use the directory; each record and segment has a version
/// of its own.
pub const FORMAT_VERSION: u64 = 1;

/// The record of the format version. A directory without it was written before versions existed
/// and has version 1.
const VERSION_FILE: &str = "version.json";

/// Takes up room that a start on a full disk gets back.
const RESERVE_FILE: &str = "reserve";
/// A start writes less: a few small files that changed, and the first lines of the log.
const RESERVE_BYTES: u64 = 128 << 10;

/// The contents of the version record, besides the version.
#[derive(Serialize, Deserialize)]
struct VersionRecord {}

/// The reason a state directory cannot be used.
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
    #[error(
        "state directory {} has format version {found}, this build reads up to {supported}; \
         upgrade mainstay, or choose another directory with --state DIR",
        path.display()
    )]
    Newer {
        path: PathBuf,
        found: u64,
        supported: u64,
    },
    #[error(
        "cannot tell the format version of state directory {}; restore {VERSION_FILE} in it from \
         a backup, or choose another directory with --state DIR",
        path.display()
    )]
    UnknownVersion { path: PathBuf, source: RecordError },
}

/// Removes the reserve if a start would otherwise have no room to write.
fn free_reserve_if_full(state: &Path) {
    let available =
        rustix::fs::statvfs(state).map(|disk| disk.f_bavail.saturating_mul(disk.f_frsize));
    if available.is_ok_and(|bytes| bytes < RESERVE_BYTES) {
        let _ = std::fs::remove_file(state.join(RESERVE_FILE));
    }
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

/// A state directory locked by this process for as long as this value lives.
#[derive(Debug)]
pub struct StateDir {
    path: PathBuf,
    lock: File,
}

impl Drop for StateDir {
    fn drop(&mut self) {
        // Closing alone is not enough: a forked child has a copy of the file descriptor until it
        // execs, and a daemon that replaces this one in place would wait for it.
        let _ = flock(&self.lock, FlockOperation::Unlock);
    }
}

impl StateDir {
    /// Creates the directory if it does not exist, checks owner, mode and format version, and
    /// locks it.
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
        read_version(&path)?;
        let run = path.join("run");
        make_dir(&run).map_err(unusable)?;
        // The sockets are here: no other user may even list them.
        std::fs::set_permissions(&run, Permissions::from_mode(0o700)).map_err(unusable)?;
        let lock = lock(&run.join("lock")).map_err(unusable)?;
        let lock = match lock {
            Ok(lock) => lock,
            Err(pid) => return Err(StateError::InUse { path, pid }),
        };
        free_reserve_if_full(&path);
        // Once more under the lock: another build may have upgraded the directory meanwhile.
        if read_version(&path)?.is_none() {
            write_version(&path).map_err(unusable)?;
        }
        Ok(Self { path, lock })
    }

    /// Reserves room for the next start on a full disk. Without room now there is none.
    pub fn reserve(&self) {
        let path = self.path.join(RESERVE_FILE);
        if std::fs::metadata(&path).is_ok_and(|reserve| reserve.len() == RESERVE_BYTES) {
            return;
        }
        let allocated = File::create(&path).and_then(|file| {
            let flags = rustix::fs::FallocateFlags::empty();
            Ok(rustix::fs::fallocate(&file, flags, 0, RESERVE_BYTES)?)
        });
        if let Err(error) = allocated {
            let _ = std::fs::remove_file(&path);
            tracing::warn!(%error, "cannot reserve room for a start on a full disk");
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

/// Reads the version record; `None` if there is none. A version this build cannot use is an error.
fn read_version(path: &Path) -> Result<Option<VersionRecord>, StateError> {
    match mainstay_records::read(&path.join(VERSION_FILE), FORMAT_VERSION) {
        Ok(record) => Ok(Some(record)),
        Err(RecordError::NotFound { .. }) => Ok(None),
        Err(RecordError::Newer {
            found, supported, ..
        }) => Err(StateError::Newer {
            path: path.to_owned(),
            found,
            supported,
        }),
        Err(source) => Err(StateError::UnknownVersion {
            path: path.to_owned(),
            source,
        }),
    }
}

fn write_version(path: &Path) -> std::io::Result<()> {
    remove_temporaries_of(path, &[VERSION_FILE])?;
    let record = mainstay_records::encode(&VersionRecord {}, FORMAT_VERSION)?;
    mainstay_records::write_durable(&path.join(VERSION_FILE), &record, 0o600)
}

/// Takes the lock, or returns the PID of its holder. The kernel releases it when the holder dies,
/// so a stale lock cannot exist.
fn lock(path: &Path) -> std::io::Result<Result<File, Option<u32>>> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)?;
    let file = match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => file,
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let pid = holder_pid(&file)?;
            if pid.is_none_or(is_running) {
                return Ok(Err(pid));
            }
            match lock_of_dead_holder(file)? {
                Some(file) => file,
                None => return Ok(Err(pid)),
            }
        }
        Err(error) => return Err(error.into()),
    };
    write_pid(&file)?;
    Ok(Ok(file))
}

/// Waits for the lock of a daemon that has died: a child that it was just forking has it open until
/// it executes its program. Returns `None` if the lock is not released in time.
fn lock_of_dead_holder(file: File) -> std::io::Result<Option<File>> {
    let (sender, receiver) = mpsc::channel();
    // A blocking lock on a thread of its own: there is no lock with a timeout.
    std::thread::Builder::new()
        .name("state-lock".to_owned())
        .spawn(move || {
            let locked = flock(&file, FlockOperation::LockExclusive);
            let _ = sender.send(locked.map(|()| file));
        })?;
    match receiver.recv_timeout(LOCK_TIMEOUT) {
        Ok(locked) => Ok(Some(locked?)),
        Err(_) => Ok(None),
    }
}

fn write_pid(mut file: &File) -> std::io::Result<()> {
    file.set_len(0)?;
    file.rewind()?;
    writeln!(file, "{}", std::process::id())
}

fn holder_pid(file: &File) -> std::io::Result<Option<u32>> {
    let mut pid = String::new();
    file.take(32).read_to_string(&mut pid)?;
    Ok(pid.trim().parse().ok())
}

fn is_running(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    pid.is_some_and(|pid| test_kill_process(pid) != Err(rustix::io::Errno::SRCH))
}

/// Returns the PID of the daemon that serves `state` now, if one does.
pub fn serving_pid(state: &Path) -> Option<u32> {
    let file = File::open(state.join("run/lock")).ok()?;
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Err(rustix::io::Errno::WOULDBLOCK) => holder_pid(&file).ok()?,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_daemon_is_refused_with_the_pid_of_the_first() {
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

    /// A child that a killed daemon was forking keeps the lock until it has executed its program.
    #[test]
    fn a_lock_that_briefly_outlives_its_daemon_is_waited_for() {
        let dir = tempfile::tempdir().unwrap();
        drop(StateDir::open(dir.path()).unwrap());
        let mut daemon = std::process::Command::new("true").spawn().unwrap();
        daemon.wait().unwrap();
        let path = dir.path().join("run/lock");
        std::fs::write(&path, format!("{}\n", daemon.id())).unwrap();
        let inherited = File::open(&path).unwrap();
        flock(&inherited, FlockOperation::LockExclusive).unwrap();
        std::thread::scope(|scope| {
            let opened = scope.spawn(|| StateDir::open(dir.path()));
            // The kernel lists a waiter below the lock it waits for.
            let inode = format!(":{} ", inherited.metadata().unwrap().ino());
            let is_waiting = |line: &str| line.contains("->") && line.contains(&inode);
            let locks = || std::fs::read_to_string("/proc/locks").unwrap();
            let began = std::time::Instant::now();
            while !locks().lines().any(is_waiting) {
                assert!(began.elapsed() < LOCK_TIMEOUT, "nothing waits for the lock");
                std::thread::yield_now();
            }
            drop(inherited);
            opened.join().unwrap().unwrap();
        });
    }

    #[test]
    fn a_directory_writable_by_others_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err().to_string();
        assert!(error.contains("chmod go-w"), "{error}");
    }

    fn names(path: &Path) -> Vec<std::ffi::OsString> {
        let entries = std::fs::read_dir(path).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    }

    #[test]
    fn a_directory_without_a_version_is_version_1_and_gets_the_record() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(".version.json.1-0.tmp"), "torn").unwrap();
        for _ in 0..2 {
            drop(StateDir::open(dir.path()).unwrap());
            let record = std::fs::read(dir.path().join(VERSION_FILE)).unwrap();
            assert_eq!(record, br#"{"version":1}"#);
        }
        let mut names = names(dir.path());
        names.sort();
        assert_eq!(names, ["run", VERSION_FILE]);
    }

    #[test]
    fn unknown_fields_of_the_version_record_are_ignored_and_kept() {
        let dir = tempfile::tempdir().unwrap();
        let record = r#"{"version":1,"later":[7]}"#;
        std::fs::write(dir.path().join(VERSION_FILE), record).unwrap();
        drop(StateDir::open(dir.path()).unwrap());
        let kept = std::fs::read_to_string(dir.path().join(VERSION_FILE)).unwrap();
        assert_eq!(kept, record);
    }

    #[test]
    fn a_newer_version_is_refused_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(VERSION_FILE), r#"{"version":2}"#).unwrap();
        let error = StateDir::open(dir.path()).unwrap_err().to_string();
        assert!(
            error.contains("has format version 2, this build reads up to 1; upgrade mainstay"),
            "{error}"
        );
        assert_eq!(names(dir.path()), [VERSION_FILE]);
    }

    #[test]
    fn a_corrupt_version_record_is_refused_and_nothing_is_changed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(VERSION_FILE), "{").unwrap();
        let error = StateDir::open(dir.path()).unwrap_err();
        assert!(
            matches!(error, StateError::UnknownVersion { .. }),
            "{error:?}"
        );
        assert_eq!(names(dir.path()), [VERSION_FILE]);
    }
}
