//! A log that another program writes: one file, which may be renamed and recreated.
//!
//! A kubelet rotates `0.log` by renaming it to `0.log.20260301-120000`, and compresses the older
//! ones. The readable files are one log here: each keeps the number it was first seen with. Nothing
//! is ever written, and the last component of the path is never followed as a symbolic link: the
//! permission to read logs must not open other files.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

use super::error::LogError;

/// The number of attempts to open a file that is rotated meanwhile.
const ATTEMPTS: usize = 5;

#[derive(Debug)]
pub(super) struct ForeignLog {
    name: String,
    directory: PathBuf,
    file_name: OsString,
    /// By generation, from 1.
    seen: Vec<Seen>,
}

/// Identity of a file. The inode alone is not enough, because it is reused after a deletion; but a
/// name changes only once, when the current file is rotated.
#[derive(Debug)]
struct Seen {
    inode: u64,
    name: OsString,
}

impl ForeignLog {
    pub(super) fn open(path: &Path) -> Result<Self, LogError> {
        let name = || path.display().to_string();
        let not_found = || LogError::NotFound { log: name() };
        let open_error = |source: io::Error| match source.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => not_found(),
            _ => LogError::Open {
                path: path.to_owned(),
                source,
            },
        };
        let (Some(parent), Some(file_name)) = (path.parent(), path.file_name()) else {
            return Err(not_found());
        };
        // Logs of pods may be behind symbolic links; the resolved directory is watched and read.
        let directory = parent.canonicalize().map_err(open_error)?;
        let mut log = Self {
            name: name(),
            directory,
            file_name: file_name.to_owned(),
            seen: Vec::new(),
        };
        open_regular(&log.path(file_name)).map_err(open_error)?;
        log.generations().map_err(open_error)?;
        Ok(log)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The directory to watch.
    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Returns all readable generations, oldest first.
    pub(super) fn generations(&mut self) -> io::Result<Vec<u64>> {
        Ok(self.look()?.into_iter().map(|(number, _)| number).collect())
    }

    /// Opens a generation; `None` if its file does not exist.
    pub(super) fn open_generation(&mut self, generation: u64) -> io::Result<Option<File>> {
        for _ in 0..ATTEMPTS {
            // Nearly always the request is for the file being written.
            if let Some((file, inode)) = self.open_inode(&self.file_name)?
                && self.is_newest(inode)
            {
                let newest = as_number(self.seen.len());
                if generation >= newest {
                    return Ok((generation == newest).then_some(file));
                }
            }
            let found = self.look()?;
            let Some((_, name)) = found.into_iter().find(|(number, _)| *number == generation)
            else {
                return Ok(None);
            };
            if let Some((file, inode)) = self.open_inode(&name)?
                && self.inode_of(generation) == Some(inode)
            {
                return Ok(Some(file));
            }
        }
        Ok(None)
    }

    /// Updates the files by generation; new ones get the next numbers.
    fn look(&mut self) -> io::Result<Vec<(u64, OsString)>> {
        let mut names: Vec<OsString> = Vec::new();
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        for entry in entries {
            let name = entry?.file_name();
            if self.is_rotated(&name) {
                names.push(name);
            }
        }
        // Their times are of one width.
        names.sort_unstable();
        names.push(self.file_name.clone());
        let mut found = Vec::new();
        for name in names {
            let Ok(metadata) = fs::symlink_metadata(self.path(&name)) else {
                continue;
            };
            if metadata.is_file() {
                found.push((self.number(metadata.ino(), &name), name));
            }
        }
        found.sort_unstable();
        Ok(found)
    }

    fn number(&mut self, inode: u64, name: &OsStr) -> u64 {
        let known = if name == self.file_name {
            // The current file is new or was current before: never one that was rotated.
            self.is_newest(inode).then(|| self.seen.len() - 1)
        } else {
            self.seen.iter().rposition(|seen| {
                seen.inode == inode && (seen.name == name || seen.name == self.file_name)
            })
        };
        let seen = Seen {
            inode,
            name: name.to_owned(),
        };
        match known {
            Some(at) => {
                self.seen[at] = seen;
                as_number(at + 1)
            }
            None => {
                self.seen.push(seen);
                as_number(self.seen.len())
            }
        }
    }

    /// True if this was the current file at the last update.
    fn is_newest(&self, inode: u64) -> bool {
        self.seen
            .last()
            .is_some_and(|seen| seen.inode == inode && seen.name == self.file_name)
    }

    fn inode_of(&self, generation: u64) -> Option<u64> {
        let at = usize::try_from(generation.checked_sub(1)?).ok()?;
        self.seen.get(at).map(|seen| seen.inode)
    }

    /// `<name>.YYYYMMDD-hhmmss`, not compressed.
    fn is_rotated(&self, name: &OsStr) -> bool {
        let time = name
            .as_bytes()
            .strip_prefix(self.file_name.as_bytes())
            .and_then(|rest| rest.strip_prefix(b"."));
        let digits = |text: &[u8]| text.iter().all(u8::is_ascii_digit);
        matches!(time, Some(time) if time.len() == 15
            && time[8] == b'-' && digits(&time[..8]) && digits(&time[9..]))
    }

    fn path(&self, name: &OsStr) -> PathBuf {
        self.directory.join(name)
    }

    fn open_inode(&self, name: &OsStr) -> io::Result<Option<(File, u64)>> {
        match open_regular(&self.path(name)) {
            Ok(file) => {
                let inode = file.metadata()?.ino();
                Ok(Some((file, inode)))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Opens a file without following symbolic links and without blocking on a FIFO.
fn open_regular(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "it is not a regular file",
        ))
    }
}

fn as_number(count: usize) -> u64 {
    crate::io::as_u64(count)
}
