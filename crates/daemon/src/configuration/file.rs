//! The configuration file: as it is, its replacement, and the versions kept of it.

use std::fs::{self, DirBuilder, File};
use std::io::{self, Read as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use mainstay_records::{remove_temporaries_of, write_durable, write_durable_for};
use rustix::fs::OFlags;

use super::ChangeError;
use crate::config::MAX_FILE_BYTES;

/// The number of versions kept.
pub(super) const MAX_KEPT: usize = 10;
/// A new file may hold secrets.
const PRIVATE_MODE: u32 = 0o600;
/// The folder of the state directory with the versions kept.
const KEPT_FOLDER: &str = "configuration";

/// The file that a change replaces.
#[derive(Debug)]
pub(super) struct ConfigFile {
    /// Without symbolic links: the target of a link is replaced, not the link.
    pub(super) path: PathBuf,
    before: Option<Before>,
}

#[derive(Debug)]
struct Before {
    text: Vec<u8>,
    mode: u32,
    owner: (u32, u32),
}

impl ConfigFile {
    /// Reads the file, if there is one, and checks that it could be replaced.
    pub(super) fn read(path: &Path) -> Result<Self, ChangeError> {
        let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
        // The open of a FIFO would wait for its writer.
        let opened = File::options()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(&path);
        let before = match opened {
            Ok(file) => Some(Self::read_open(&path, file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(source) => return Err(ChangeError::Unreadable { path, source }),
        };
        let directory = path.parent().unwrap_or(Path::new("/"));
        rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).map_err(|errno| {
            ChangeError::Unwritable {
                path: path.clone(),
                source: errno.into(),
            }
        })?;
        Ok(Self { path, before })
    }

    fn read_open(path: &Path, file: File) -> Result<Before, ChangeError> {
        let unreadable = |source| ChangeError::Unreadable {
            path: path.to_owned(),
            source,
        };
        let metadata = file.metadata().map_err(unreadable)?;
        if !metadata.is_file() {
            return Err(ChangeError::NotAFile {
                path: path.to_owned(),
            });
        }
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_end(&mut text)
            .map_err(unreadable)?;
        Ok(Before {
            text,
            mode: metadata.mode() & 0o7777,
            owner: (metadata.uid(), metadata.gid()),
        })
    }

    pub(super) fn text(&self) -> &[u8] {
        self.before.as_ref().map_or(&[], |before| &before.text)
    }

    /// Replaces the file, owner and mode kept, after keeping its contents below `state`.
    pub(super) fn replace(&self, text: &[u8], state: &Path) -> Result<(), ChangeError> {
        if self.before.as_ref().is_some_and(|it| it.text == text) {
            return Ok(());
        }
        if let Some(before) = &self.before {
            let folder = state.join(KEPT_FOLDER);
            keep(&folder, &before.text).map_err(|source| ChangeError::NotKept {
                path: folder,
                source,
            })?;
        }
        let (mode, owner) = match &self.before {
            Some(before) => (before.mode, Some(before.owner)),
            None => (PRIVATE_MODE, None),
        };
        self.remove_temporaries();
        write_durable_for(&self.path, text, mode, owner).map_err(|source| ChangeError::Unwritable {
            path: self.path.clone(),
            source,
        })
    }

    /// A daemon that was killed while it wrote leaves its temporary file.
    fn remove_temporaries(&self) {
        let name = self.path.file_name().and_then(|name| name.to_str());
        if let (Some(directory), Some(name)) = (self.path.parent(), name) {
            // One that stays is never read.
            let _ = remove_temporaries_of(directory, &[name]);
        }
    }
}

/// Adds a version and removes the oldest.
fn keep(folder: &Path, text: &[u8]) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(folder)?;
    let mut kept = numbers(folder)?;
    let next = kept.last().map_or(1, |last| last.saturating_add(1));
    let name = |number: u64| format!("{number:06}.toml");
    write_durable(&folder.join(name(next)), text, PRIVATE_MODE)?;
    kept.push(next);
    let excess = kept.len().saturating_sub(MAX_KEPT);
    for number in kept.drain(..excess) {
        fs::remove_file(folder.join(name(number)))?;
    }
    Ok(())
}

fn numbers(folder: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number = name.to_str().and_then(|name| name.strip_suffix(".toml"));
        let digits = number.filter(|number| number.bytes().all(|b| b.is_ascii_digit()));
        numbers.extend(digits.and_then(|number| number.parse::<u64>().ok()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn kept(state: &Path) -> Vec<String> {
        let folder = state.join(KEPT_FOLDER);
        let read = |number: &u64| fs::read_to_string(folder.join(format!("{number:06}.toml")));
        let numbers = numbers(&folder).unwrap();
        numbers.iter().map(|number| read(number).unwrap()).collect()
    }

    #[test]
    fn the_last_versions_are_kept() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.toml");
        for number in 0..15 {
            let file = ConfigFile::read(&path).unwrap();
            for _ in 0..2 {
                let text = format!("# {number}\n");
                ConfigFile::read(&path)
                    .unwrap()
                    .replace(text.as_bytes(), dir.path())
                    .unwrap();
            }
            drop(file);
        }
        let wanted: Vec<String> = (4..14).map(|number| format!("# {number}\n")).collect();
        assert_eq!(kept(dir.path()), wanted);
    }

    #[test]
    fn mode_links_and_a_missing_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (path, link) = (dir.path().join("real.toml"), dir.path().join("link.toml"));
        fs::write(&path, "old").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink("real.toml", &link).unwrap();
        fs::write(dir.path().join(".real.toml.1-0.tmp"), "torn").unwrap();
        let file = ConfigFile::read(&link).unwrap();
        assert_eq!(file.text(), b"old");
        file.replace(b"new", &dir.path().join("state")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert!(!dir.path().join(".real.toml.1-0.tmp").exists());

        let missing = dir.path().join("none/config.toml");
        let error = ConfigFile::read(&missing).unwrap_err().to_string();
        assert!(error.contains("create its directory first"), "{error}");
        let folder = ConfigFile::read(dir.path()).unwrap_err();
        assert!(matches!(folder, ChangeError::NotAFile { .. }), "{folder:?}");
    }
}
