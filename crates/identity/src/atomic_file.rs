//! Replacing a file as a whole: whoever reads the path, also after a crash or a power cut, finds
//! either the old contents or the new, never a part. Nothing else belongs here.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// How often a name taken by a leftover of an earlier process is stepped over.
const NAME_ATTEMPTS: usize = 1000;

/// Writes `bytes` to `path` with exactly the permissions `mode`, whatever the umask.
///
/// The contents go to a temporary file beside the target, reach the disk, and only then take the
/// name. On an error the target is untouched and the temporary file is gone.
pub fn write_atomic(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    let (Some(name), Some(directory)) = (path.file_name(), path.parent()) else {
        let text = format!("{} does not name a file", path.display());
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let (temporary, file) = create_beside(directory, name)?;
    let written = fill(file, bytes, mode).and_then(|()| std::fs::rename(&temporary, path));
    if let Err(error) = written {
        // The first error is the one that matters; a leftover is swept up on the next start.
        let _ = std::fs::remove_file(&temporary);
        return Err(error);
    }
    File::open(directory)?.sync_all()
}

/// Whether `candidate` is a temporary file that a crash left behind while `name` was written.
pub(crate) fn is_leftover_of(candidate: &OsStr, name: &str) -> bool {
    candidate.to_str().is_some_and(|text| {
        text.strip_prefix('.')
            .and_then(|text| text.strip_prefix(name))
            .is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".tmp"))
    })
}

fn create_beside(directory: &Path, name: &OsStr) -> io::Result<(PathBuf, File)> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for _ in 0..NAME_ATTEMPTS {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let mut temporary = OsString::from(".");
        temporary.push(name);
        temporary.push(format!(".{}-{number}.tmp", std::process::id()));
        let temporary = directory.join(temporary);
        // Private from the first moment: the contents may be a key.
        match OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temporary)
        {
            Ok(file) => return Ok((temporary, file)),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn fill(mut file: File, bytes: &[u8], mode: u32) -> io::Result<()> {
    file.write_all(bytes)?;
    file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    file.sync_all()
}
