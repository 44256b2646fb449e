//! Reading of files with secrets. A file that others can read is refused, so that a wrong mode is
//! found when it is set and not when it is exploited.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// The maximum size of a file with a key or a configuration.
const MAX_BYTES: u64 = 1 << 20;

/// The reason a file with a secret cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecretFileError {
    /// Group or others have some access to the file.
    #[error(
        "{} can be read by others (mode {mode:04o}); chmod 600 {}",
        file_name(.path), .path.display()
    )]
    OpenToOthers {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file could not be opened or read.
    #[error("cannot read {}; check that it exists and that this user may read it", .path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The I/O error.
        source: io::Error,
    },
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// Reads a secret file that nobody else can read.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, SecretFileError> {
    let (bytes, mode) = read_with_mode(path)?;
    match mode & 0o077 {
        0 => Ok(bytes),
        _ => Err(SecretFileError::OpenToOthers {
            path: path.to_owned(),
            mode,
        }),
    }
}

/// Reads a file and its permission bits, which are those of the open file and so of the bytes read.
pub(crate) fn read_with_mode(path: &Path) -> Result<(Vec<u8>, u32), SecretFileError> {
    let unreadable = |source| SecretFileError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    let mut bytes = Vec::new();
    (&mut file)
        .take(MAX_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_BYTES {
        return Err(unreadable(io::ErrorKind::FileTooLarge.into()));
    }
    Ok((bytes, mode))
}
