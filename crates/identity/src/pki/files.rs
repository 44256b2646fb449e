//! The four files of the directory: paths, reading, writing, and the lock against concurrent
//! processes. It does not validate their contents.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use mainstay_records::{remove_temporaries_of, write_durable};
use rustix::fs::{FlockOperation, flock};
use rustix::io::retry_on_intr;

use super::error::PkiError;
use crate::private_key::PrivateKeyPem;
use crate::secret_file::{SecretFileError, read_secret};

const PUBLIC_MODE: u32 = 0o644;
const SECRET_MODE: u32 = 0o600;
const DIRECTORY_MODE: u32 = 0o700;

/// One of the four files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Name {
    CaCert,
    CaKey,
    NodeCert,
    NodeKey,
}

impl Name {
    const ALL: [Self; 4] = [Self::CaCert, Self::CaKey, Self::NodeCert, Self::NodeKey];

    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::CaCert => "ca.crt",
            Self::CaKey => "ca.key",
            Self::NodeCert => "node.crt",
            Self::NodeKey => "node.key",
        }
    }
}

/// The directory of the files.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    directory: PathBuf,
}

impl Files {
    pub(crate) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(crate) fn path(&self, name: Name) -> PathBuf {
        self.directory.join(name.as_str())
    }

    /// Creates the directory if it does not exist, waits for its lock, and removes temporary files
    /// of interrupted writes. The lock is held as long as the value lives.
    pub(crate) fn lock(&self) -> Result<File, PkiError> {
        self.try_lock().map_err(|source| PkiError::Directory {
            path: self.directory.clone(),
            source,
        })
    }

    fn try_lock(&self) -> io::Result<File> {
        DirBuilder::new()
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(&self.directory)?;
        let directory = File::open(&self.directory)?;
        retry_on_intr(|| flock(&directory, FlockOperation::LockExclusive))?;
        remove_temporaries_of(&self.directory, &Name::ALL.map(Name::as_str))?;
        Ok(directory)
    }

    pub(crate) fn exists(&self, name: Name) -> bool {
        self.path(name).exists()
    }

    /// Reads a certificate file; `None` if it does not exist. Invalid UTF-8 is replaced: it is no
    /// certificate either way.
    pub(crate) fn certificate(&self, name: Name) -> Result<Option<String>, PkiError> {
        let path = self.path(name);
        match fs::read(&path) {
            Ok(bytes) => Ok(Some(String::from_utf8_lossy(&bytes).into_owned())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(PkiError::Read { path, source }),
        }
    }

    /// Reads a key file; `None` if it does not exist.
    pub(crate) fn key(&self, name: Name) -> Result<Option<PrivateKeyPem>, PkiError> {
        match read_secret(&self.path(name)) {
            Ok(bytes) => Ok(Some(PrivateKeyPem::new(String::from_utf8_lossy(&bytes)))),
            Err(SecretFileError::Unreadable { source, .. })
                if source.kind() == io::ErrorKind::NotFound =>
            {
                Ok(None)
            }
            Err(error) => Err(error.into()),
        }
    }

    pub(crate) fn write_certificate(&self, name: Name, pem: &str) -> Result<(), PkiError> {
        self.write(name, pem, PUBLIC_MODE)
    }

    pub(crate) fn write_key(&self, name: Name, key: &PrivateKeyPem) -> Result<(), PkiError> {
        self.write(name, key.expose(), SECRET_MODE)
    }

    fn write(&self, name: Name, text: &str, mode: u32) -> Result<(), PkiError> {
        let path = self.path(name);
        write_durable(&path, text.as_bytes(), mode)
            .map_err(|source| PkiError::Write { path, source })
    }

    /// Renames an unusable file to `<name>.damaged`, so that its contents are not lost.
    pub(crate) fn set_aside(&self, name: Name) -> Result<(), PkiError> {
        let path = self.path(name);
        let aside = self.directory.join(format!("{}.damaged", name.as_str()));
        fs::rename(&path, aside).map_err(|source| PkiError::Write { path, source })
    }
}
