//! Depth-first traversal of a tree: names in byte order, a directory is left after everything below
//! it.
//!
//! Every entry is opened relative to its directory, which is held open, so no path is too long, and
//! no symbolic link below the root is followed, also while entries are renamed. The root is opened
//! once, and everything else is reached from there. Memory is one directory's names per level, and the number of open
//! directories is bounded however deep the tree is.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, Stat, fstat, openat, readlinkat, statat};

use super::read::reopen;

/// The number of directories kept open at the top of the path, and again at the bottom. Those
/// between are reopened on the way up.
const MAX_OPEN: usize = 16;

/// The next step of the traversal; the [`Descent`] has its path.
#[derive(Debug)]
pub(super) enum Step {
    /// An entry, with its metadata or the error of reading it.
    Met(io::Result<Stat>),
    /// The directory is unreadable, or only partly readable.
    Unreadable(io::Error),
    /// An entered directory is complete. Occurs once for each.
    Left,
}

#[derive(Debug)]
pub(super) struct Descent {
    /// Opened without access to its content, which a device might react to.
    root: OwnedFd,
    /// Path of the entry last met or left.
    path: Vec<u8>,
    root_length: usize,
    levels: Vec<Level>,
    next: Next,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Root,
    /// Enter the directory just met.
    Down,
    Along,
}

/// A directory on the current path.
#[derive(Debug)]
struct Level {
    place: Place,
    path_length: usize,
    names: Names,
    next: usize,
}

#[derive(Debug)]
enum Place {
    Open(OwnedFd),
    /// Closed because too many are open; identifies it when it is reopened.
    Closed {
        device: u64,
        inode: u64,
    },
    Lost,
}

/// Where the entry just met is.
#[derive(Debug)]
enum Position<'a> {
    Root,
    /// A directory, and the name in it.
    In(BorrowedFd<'a>, &'a OsStr),
}

/// The names of a directory in one allocation: a million of them take a few megabytes.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    spans: Vec<(usize, usize)>,
}

impl Descent {
    /// Starts at `root`. A symbolic link is resolved; a missing root is an error.
    pub(super) fn new(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let opened = openat(CWD, root, flags, Mode::empty())?;
        // The name for people; from here on only the descriptor counts.
        let path = if std::fs::symlink_metadata(root)?.is_symlink() {
            std::fs::canonicalize(root)?
        } else {
            root.to_owned()
        };
        let path = path.into_os_string().into_vec();
        Ok(Self {
            root: opened,
            root_length: path.len(),
            path,
            levels: Vec::new(),
            next: Next::Root,
        })
    }

    /// Enters the directory just met instead of skipping it.
    pub(super) fn enter(&mut self) {
        self.next = Next::Down;
    }

    pub(super) fn step(&mut self) -> Option<Step> {
        match std::mem::replace(&mut self.next, Next::Along) {
            Next::Root => {
                let stat = fstat(&self.root);
                return Some(Step::Met(stat.map_err(io::Error::from)));
            }
            Next::Down => {
                if let Some(error) = self.go_down() {
                    return Some(Step::Unreadable(error));
                }
            }
            Next::Along => {}
        }
        loop {
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.get(level.next) else {
                self.path.truncate(level.path_length);
                return Some(self.go_up());
            };
            level.next += 1;
            let Place::Open(dir) = &level.place else {
                level.names = Names::default();
                return Some(Step::Unreadable(moved()));
            };
            self.path.truncate(level.path_length);
            if self.path.last() != Some(&b'/') {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name);
            match statat(dir, OsStr::from_bytes(name), AtFlags::SYMLINK_NOFOLLOW) {
                // Removed since the directory was read: as if it had never existed.
                Err(rustix::io::Errno::NOENT) => {}
                stat => return Some(Step::Met(stat.map_err(io::Error::from))),
            }
        }
    }

    pub(super) fn path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.path))
    }

    /// The path below the root; empty for the root itself.
    pub(super) fn relative(&self) -> &Path {
        let below = self.path.get(self.root_length..).unwrap_or_default();
        Path::new(OsStr::from_bytes(below.strip_prefix(b"/").unwrap_or(below)))
    }

    /// The number of levels below the root.
    pub(super) fn depth(&self) -> usize {
        self.levels.len()
    }

    /// Opens the file just met for reading. What it is has to be checked on the descriptor: another
    /// entry may have its name by now. Never blocks, and never follows a symbolic link.
    pub(super) fn open(&self) -> io::Result<File> {
        let flags =
            OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        match self.position()? {
            Position::Root => reopen(self.root.as_fd()),
            Position::In(dir, name) => Ok(File::from(openat(dir, name, flags, Mode::empty())?)),
        }
    }

    /// Returns the target of the symbolic link just met.
    pub(super) fn read_link(&self) -> io::Result<Vec<u8>> {
        match self.position()? {
            Position::Root => Err(rustix::io::Errno::INVAL.into()),
            Position::In(dir, name) => Ok(readlinkat(dir, name, Vec::new())?.into_bytes()),
        }
    }

    /// Returns a path to the entry just met for calls that take no descriptor. It leads through the
    /// directory that is held open; its last component must not be followed, except for the root,
    /// which is never a symbolic link.
    pub(super) fn held_path(&self) -> io::Result<PathBuf> {
        let held = |fd: BorrowedFd<'_>| PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        Ok(match self.position()? {
            Position::Root => held(self.root.as_fd()),
            Position::In(dir, name) => held(dir).join(name),
        })
    }

    fn position(&self) -> io::Result<Position<'_>> {
        let Some(level) = self.levels.last() else {
            return Ok(Position::Root);
        };
        let Place::Open(dir) = &level.place else {
            return Err(moved());
        };
        let name = self.path.get(level.path_length..).unwrap_or_default();
        let name = name.strip_prefix(b"/").unwrap_or(name);
        Ok(Position::In(dir.as_fd(), OsStr::from_bytes(name)))
    }

    fn go_down(&mut self) -> Option<io::Error> {
        let dir = self.position().and_then(|place| match place {
            Position::Root => open_dir(self.root.as_fd(), OsStr::new(".")),
            Position::In(at, name) => open_dir(at, name),
        });
        let opened = dir.and_then(|dir| Ok((Names::read(&dir)?, dir)));
        let (place, names, error) = match opened {
            Ok((names, dir)) => (Place::Open(dir), names, None),
            // It is left like any other, as an empty one.
            Err(error) => (Place::Lost, Names::default(), Some(error)),
        };
        self.levels.push(Level {
            place,
            path_length: self.path.len(),
            names,
            next: 0,
        });
        if let Some(between) = self.levels.len().checked_sub(MAX_OPEN + 1)
            && between >= MAX_OPEN
            && let Some(level) = self.levels.get_mut(between)
        {
            level.place.close();
        }
        error
    }

    fn go_up(&mut self) -> Step {
        let left = self.levels.pop();
        if let Some(above) = self.levels.last_mut()
            && let Some(left) = left
        {
            above.place.open_again(&left.place);
        }
        Step::Left
    }
}

impl Place {
    fn close(&mut self) {
        if let Self::Open(dir) = self {
            *self = match fstat(dir) {
                Ok(stat) => Self::Closed {
                    device: stat.st_dev,
                    inode: stat.st_ino,
                },
                Err(_) => Self::Lost,
            };
        }
    }

    /// Reopens a directory as the parent of one below. If that was moved, this one is lost.
    fn open_again(&mut self, below: &Self) {
        let Self::Closed { device, inode } = *self else {
            return;
        };
        *self = Self::Lost;
        if let Self::Open(below) = below
            && let Ok(dir) = open_dir(below.as_fd(), OsStr::new(".."))
            && let Ok(stat) = fstat(&dir)
            && (stat.st_dev, stat.st_ino) == (device, inode)
        {
            *self = Self::Open(dir);
        }
    }
}

impl Names {
    fn read(dir: &OwnedFd) -> io::Result<Self> {
        let mut names = Self::default();
        let mut space = Vec::with_capacity(64 << 10);
        let mut entries = RawDir::new(dir, space.spare_capacity_mut());
        while let Some(entry) = entries.next() {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                let start = names.bytes.len();
                names.bytes.extend_from_slice(name);
                names.spans.push((start, names.bytes.len()));
            }
        }
        let bytes = &names.bytes;
        names
            .spans
            .sort_unstable_by(|a, b| bytes[a.0..a.1].cmp(&bytes[b.0..b.1]));
        Ok(names)
    }

    fn get(&self, index: usize) -> Option<&[u8]> {
        let (start, end) = *self.spans.get(index)?;
        self.bytes.get(start..end)
    }
}

fn moved() -> io::Error {
    io::Error::other("moved while it was read")
}

fn open_dir(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    // NOFOLLOW: a directory may have been replaced by a symbolic link meanwhile.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{FileType, RenameFlags, mkdirat, renameat_with};

    /// Creates `levels` nested directories, each with a file that sorts after its subdirectory.
    fn deep(levels: usize) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let mut at = open_dir(CWD, dir.path().as_os_str()).unwrap();
        for _ in 0..levels {
            mkdirat(&at, "d", Mode::RWXU).unwrap();
            let flags = OFlags::CREATE | OFlags::WRONLY;
            drop(openat(&at, "file", flags, Mode::RWXU).unwrap());
            at = open_dir(at.as_fd(), OsStr::new("d")).unwrap();
        }
        dir
    }

    fn is_dir(stat: &Stat) -> bool {
        FileType::from_raw_mode(stat.st_mode) == FileType::Directory
    }

    /// The number of file descriptors of this process open below a directory.
    fn open_below(root: &Path) -> usize {
        let fds = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
        fds.filter_map(|fd| std::fs::read_link(fd.path()).ok())
            .filter(|target| target.starts_with(root))
            .count()
    }

    /// Removes a tree that is too deep for a path, from the bottom up.
    fn remove(dir: &tempfile::TempDir) {
        let status = std::process::Command::new("rm")
            .arg("-rf")
            .arg(dir.path())
            .status();
        assert!(status.unwrap().success());
    }

    #[test]
    fn a_tree_deeper_than_path_max_is_traversed_with_few_open_directories() {
        let levels = 3000;
        let dir = deep(levels);
        let mut descent = Descent::new(dir.path()).unwrap();
        let (mut files, mut left, mut most_open) = (0, 0, 0);
        while let Some(step) = descent.step() {
            match step {
                Step::Met(Ok(stat)) if is_dir(&stat) => descent.enter(),
                Step::Met(Ok(_)) => files += 1,
                Step::Met(Err(error)) | Step::Unreadable(error) => panic!("{error}"),
                Step::Left => left += 1,
            }
            if descent.depth().is_multiple_of(500) {
                most_open = most_open.max(open_below(dir.path()));
            }
        }
        assert_eq!((files, left), (levels, levels + 1));
        assert!(most_open <= 2 * MAX_OPEN + 1, "{most_open}");
        remove(&dir);
    }

    #[test]
    fn a_directory_moved_during_the_traversal_loses_only_the_closed_levels() {
        let levels = 100;
        let dir = deep(levels);
        let elsewhere = tempfile::tempdir().unwrap();
        let mut descent = Descent::new(dir.path()).unwrap();
        let (mut files, mut left, mut unreadable) = (0, 0, 0);
        while let Some(step) = descent.step() {
            match step {
                Step::Met(Ok(stat)) if is_dir(&stat) => descent.enter(),
                Step::Met(Ok(_)) => files += 1,
                Step::Met(Err(error)) => panic!("{error}"),
                Step::Unreadable(_) => unreadable += 1,
                Step::Left if left == 0 => {
                    left = 1;
                    // From the level of which the directory above has been closed.
                    let moved = dir.path().join(["d"; 50].join("/"));
                    let to = elsewhere.path().join("moved");
                    renameat_with(CWD, &moved, CWD, &to, RenameFlags::empty()).unwrap();
                }
                Step::Left => left += 1,
            }
        }
        assert_eq!(left, levels + 1, "every directory is left");
        assert_eq!(files + unreadable, levels, "every loss is reported");
        assert_eq!(unreadable, 50 - MAX_OPEN, "the top stays open");
        remove(&dir);
        remove(&elsewhere);
    }
}
