//! Reading files that hold secrets. A secret others can read is refused, so that a wrong mode is
//! found on the day it is made and not on the day it is used.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Far more than any key or configuration of ours.
const MOST_BYTES: u64 = 1 << 20;

/// Why a file with a secret could not be used.
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
        /// What the system said.
        source: io::Error,
    },
}

fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned()
}

/// The contents of a secret file. The mode is taken from the open file, so it is the mode of
/// what is read.
pub(crate) fn read_secret(path: &Path) -> Result<Vec<u8>, SecretFileError> {
    let unreadable = |source| SecretFileError::Unreadable {
        path: path.to_owned(),
        source,
    };
    let mut file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(SecretFileError::OpenToOthers {
            path: path.to_owned(),
            mode,
        });
    }
    let mut bytes = Vec::new();
    (&mut file)
        .take(MOST_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    if bytes.len() as u64 > MOST_BYTES {
        return Err(unreadable(io::ErrorKind::FileTooLarge.into()));
    }
    Ok(bytes)
}
