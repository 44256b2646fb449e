//! A walk over a tree: depth first, names in byte order, the root first.
//!
//! What cannot be looked at is an entry with its error, and the walk goes on. Memory is one
//! directory's names for each level, however many entries there are in all.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, RawDir, Stat, openat, readlinkat, statat};

#[derive(Debug, Clone, Copy, Default)]
pub struct WalkOptions {
    /// How many levels below the root; `None` for all of them.
    pub depth: Option<u32>,
    /// Whether extended attributes are read.
    pub xattrs: bool,
}

#[derive(Debug)]
pub struct Entry {
    pub path: PathBuf,
    /// Below the root; `.` for a root that is a directory, the base name for one that is not.
    pub relative: PathBuf,
    pub facts: io::Result<Facts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub kind: Kind,
    pub size: i64,
    /// As the kernel gives it: type and permissions.
    pub mode: u32,
    /// Unix seconds.
    pub modified: i64,
    pub uid: u32,
    pub gid: u32,
    /// Where a symbolic link leads.
    pub link: Option<PathBuf>,
    pub xattrs: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Regular,
    Directory,
    Symlink,
    Other,
}

/// A directory on the way down.
#[derive(Debug)]
struct Level {
    dir: OwnedFd,
    path: PathBuf,
    names: Names,
    next: usize,
}

/// The names of a directory in one piece of memory: a million of them are a few megabytes.
#[derive(Debug, Default)]
struct Names {
    bytes: Vec<u8>,
    spans: Vec<(usize, usize)>,
}

#[derive(Debug)]
pub struct Walk {
    root: PathBuf,
    options: WalkOptions,
    /// The root itself, until it has been given out.
    first: bool,
    levels: Vec<Level>,
    /// A directory whose own entry was just given out.
    descend: Option<PathBuf>,
}

impl Walk {
    /// A root that is a symbolic link is resolved; one that is not there is an error.
    pub fn new(root: &Path, options: WalkOptions) -> io::Result<Self> {
        let root = if std::fs::symlink_metadata(root)?.is_symlink() {
            std::fs::canonicalize(root)?
        } else {
            root.to_owned()
        };
        Ok(Self {
            root,
            options,
            first: true,
            levels: Vec::new(),
            descend: None,
        })
    }

    fn root_entry(&mut self) -> Entry {
        let root = self.root.clone();
        let facts = self.facts(CWD, root.as_os_str(), &root);
        let is_dir = matches!(&facts, Ok(facts) if facts.kind == Kind::Directory);
        if is_dir && self.options.depth != Some(0) {
            self.descend = Some(root.clone());
        }
        let relative = match root.file_name() {
            Some(name) if !is_dir => PathBuf::from(name),
            _ => PathBuf::from("."),
        };
        Entry {
            path: root,
            relative,
            facts,
        }
    }

    fn facts(&self, dir: BorrowedFd<'_>, name: &OsStr, path: &Path) -> io::Result<Facts> {
        let stat = statat(dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let kind = kind_of(&stat);
        let link = match kind {
            Kind::Symlink => {
                let target = readlinkat(dir, name, Vec::new())?;
                Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
            }
            _ => None,
        };
        let xattrs = if self.options.xattrs && kind != Kind::Symlink {
            xattrs(path)
        } else {
            Vec::new()
        };
        Ok(Facts {
            kind,
            size: stat.st_size,
            mode: stat.st_mode,
            modified: stat.st_mtime,
            uid: stat.st_uid,
            gid: stat.st_gid,
            link,
            xattrs,
        })
    }

    /// Opens the directory that was last given out; an entry with the error if it cannot be.
    fn go_down(&mut self) -> Option<Entry> {
        let path = self.descend.take()?;
        let opened = match self.levels.last() {
            Some(level) => {
                let name = path.file_name().unwrap_or(path.as_os_str());
                open_dir(level.dir.as_fd(), name)
            }
            None => open_dir(CWD, path.as_os_str()),
        };
        match opened.and_then(|dir| Names::read(&dir).map(|names| (dir, names))) {
            Ok((dir, names)) => {
                self.levels.push(Level {
                    dir,
                    path,
                    names,
                    next: 0,
                });
                None
            }
            Err(error) => {
                let relative = self.relative(&path);
                Some(Entry {
                    path,
                    relative,
                    facts: Err(error),
                })
            }
        }
    }

    fn relative(&self, path: &Path) -> PathBuf {
        match path.strip_prefix(&self.root) {
            Ok(below) if !below.as_os_str().is_empty() => below.to_owned(),
            _ => PathBuf::from("."),
        }
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        if std::mem::take(&mut self.first) {
            return Some(self.root_entry());
        }
        if let Some(failed) = self.go_down() {
            return Some(failed);
        }
        loop {
            let depth = self.levels.len();
            let level = self.levels.last_mut()?;
            let Some(name) = level.names.get(level.next) else {
                self.levels.pop();
                continue;
            };
            let name = OsStr::from_bytes(name).to_owned();
            level.next += 1;
            let path = level.path.join(&name);
            let level = self.levels.last()?;
            let facts = self.facts(level.dir.as_fd(), &name, &path);
            // What has vanished since the directory was read was never there.
            if matches!(&facts, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                continue;
            }
            let deeper = self
                .options
                .depth
                .is_none_or(|most| depth < usize::try_from(most).unwrap_or(usize::MAX));
            if deeper && matches!(&facts, Ok(facts) if facts.kind == Kind::Directory) {
                self.descend = Some(path.clone());
            }
            let relative = self.relative(&path);
            return Some(Entry {
                path,
                relative,
                facts,
            });
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

fn open_dir(at: BorrowedFd<'_>, name: &OsStr) -> io::Result<OwnedFd> {
    // Not followed: a directory may have become a link since it was looked at.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(openat(at, name, flags, Mode::empty())?)
}

fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

/// Attributes that cannot be read are left out: many file systems have none.
fn xattrs(path: &Path) -> Vec<(String, Vec<u8>)> {
    let mut list = vec![0; 64 << 10];
    let Ok(length) = rustix::fs::llistxattr(path, &mut list[..]) else {
        return Vec::new();
    };
    let mut value = vec![0; 64 << 10];
    list.get(..length)
        .unwrap_or_default()
        .split(|byte| *byte == 0)
        .filter(|name| !name.is_empty())
        .filter_map(|name| {
            let length = rustix::fs::lgetxattr(path, name, &mut value[..]).ok()?;
            let name = String::from_utf8_lossy(name).into_owned();
            Some((name, value.get(..length)?.to_vec()))
        })
        .collect()
}
