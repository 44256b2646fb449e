//! Atomic replacement of a file: every reader of the path, also after a crash, finds either the
//! old contents or the new, never a part.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::temporary::{durable_name, runtime_temporary_path};

/// The number of names to try when leftovers of an earlier process with the same PID exist.
const MAX_NAME_ATTEMPTS: usize = 1000;

/// The mode while a file is written, and of runtime records for good.
const PRIVATE_MODE: u32 = 0o600;

/// Replaces the file `path` by `bytes` with exactly the permissions `mode`, whatever the umask,
/// such that the new contents survive power loss.
///
/// The contents go to a temporary file in the same directory, which is fsynced, renamed to `path`
/// and made permanent by an fsync of the directory. On an error before the rename the target is
/// untouched and the temporary file is removed. An error of the last fsync means that the new
/// contents are in place but may be lost with power.
pub fn write_durable(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    write_durable_for(path, bytes, mode, None)
}

/// Replaces a file as [`write_durable`] does and gives it this owner and group, as UID and GID.
/// Without the permission to do so nothing is replaced.
pub fn write_durable_for(
    path: &Path,
    bytes: &[u8],
    mode: u32,
    owner: Option<(u32, u32)>,
) -> io::Result<()> {
    let directory = directory_of(path)?;
    let (temporary, mut file) = create_unique(path, directory)?;
    let own = |file: &File| match owner {
        Some((uid, gid)) => std::os::unix::fs::fchown(file, Some(uid), Some(gid)),
        None => Ok(()),
    };
    let written = file
        .write_all(bytes)
        // Before the mode: a change of the owner clears the set-user-ID bits.
        .and_then(|()| own(&file))
        .and_then(|()| file.set_permissions(Permissions::from_mode(mode)))
        .and_then(|()| file.sync_all());
    drop(file);
    rename_or_remove(written, &temporary, path)?;
    sync_directory(directory)
}

/// Replaces the file `path` by `bytes` with mode 0600, atomically but without an fsync.
///
/// The record survives the death of every process, but after power loss it may be missing or
/// empty. The temporary file has a fixed name ([`runtime_temporary_path`]), so a record must have
/// one writer at a time; a temporary file left by a crash is overwritten. On an error the target
/// is untouched and the temporary file is removed.
pub fn write_runtime(path: &Path, bytes: &[u8]) -> io::Result<()> {
    directory_of(path)?;
    let temporary = runtime_temporary_path(path);
    let written = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(PRIVATE_MODE)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes));
    rename_or_remove(written, &temporary, path)
}

/// Makes the entries of `directory` (files created, renamed or removed in it) survive power loss.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

fn directory_of(path: &Path) -> io::Result<&Path> {
    match (path.file_name(), path.parent()) {
        (Some(_), Some(directory)) if directory.as_os_str().is_empty() => Ok(Path::new(".")),
        (Some(_), Some(directory)) => Ok(directory),
        _ => Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{} does not name a file", path.display()),
        )),
    }
}

fn create_unique(path: &Path, directory: &Path) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let name = path.file_name().unwrap_or_default();
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..MAX_NAME_ATTEMPTS {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let temporary = directory.join(durable_name(name, std::process::id(), number));
        // Private from the first moment: the contents may be a key.
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(PRIVATE_MODE)
            .open(&temporary)
        {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn rename_or_remove(written: io::Result<()>, temporary: &Path, path: &Path) -> io::Result<()> {
    let renamed = written.and_then(|()| fs::rename(temporary, path));
    if renamed.is_err() {
        // The first error is the one to report; a temporary file that stays is never read.
        let _ = fs::remove_file(temporary);
    }
    renamed
}
