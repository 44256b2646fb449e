//! A walk over a tree: depth first, names in byte order, the root first.
//!
//! An unreadable entry is listed with its error, and the walk continues.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat, readlinkat};

use super::descent::{Descent, Step};

#[derive(Debug, Clone, Copy, Default)]
pub struct WalkOptions {
    /// The number of levels below the root; `None` for all.
    pub depth: Option<u32>,
    /// True to read extended attributes.
    pub xattrs: bool,
}

#[derive(Debug)]
pub struct Entry {
    pub path: PathBuf,
    /// The path below the root; `.` for a root that is a directory, else its base name.
    pub relative: PathBuf,
    pub facts: io::Result<Facts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    pub kind: Kind,
    pub size: i64,
    /// `st_mode`: type and permissions.
    pub mode: u32,
    /// Unix seconds.
    pub modified: i64,
    pub uid: u32,
    pub gid: u32,
    /// The target of a symbolic link.
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

#[derive(Debug)]
pub struct Walk {
    descent: Descent,
    options: WalkOptions,
}

impl Walk {
    /// Starts at `root`. A symbolic link is resolved; a missing root is an error.
    pub fn new(root: &Path, options: WalkOptions) -> io::Result<Self> {
        Ok(Self {
            descent: Descent::new(root)?,
            options,
        })
    }

    fn entry(&self, facts: io::Result<Facts>, is_dir: bool) -> Entry {
        let path = self.descent.path().to_owned();
        let below = self.descent.relative();
        let relative = match path.file_name() {
            _ if !below.as_os_str().is_empty() => below.to_owned(),
            Some(name) if !is_dir => PathBuf::from(name),
            _ => PathBuf::from("."),
        };
        Entry {
            path,
            relative,
            facts,
        }
    }

    fn facts(&self, stat: &Stat) -> io::Result<Facts> {
        let kind = kind_of(stat);
        let link = match kind {
            Kind::Symlink => {
                let (dir, name) = self.descent.place();
                let target = readlinkat(dir, name, Vec::new())?;
                Some(PathBuf::from(OsStr::from_bytes(target.as_bytes())))
            }
            _ => None,
        };
        let xattrs = if self.options.xattrs && kind != Kind::Symlink {
            xattrs(self.descent.path())
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

    fn goes_deeper(&self) -> bool {
        let depth = self.descent.depth();
        self.options
            .depth
            .is_none_or(|most| depth < usize::try_from(most).unwrap_or(usize::MAX))
    }
}

impl Iterator for Walk {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            match self.descent.step()? {
                Step::Left => {}
                Step::Unreadable(error) => return Some(self.entry(Err(error), true)),
                Step::Met(stat) => {
                    let facts = stat.and_then(|stat| self.facts(&stat));
                    let is_dir = matches!(&facts, Ok(facts) if facts.kind == Kind::Directory);
                    if is_dir && self.goes_deeper() {
                        self.descent.enter();
                    }
                    return Some(self.entry(facts, is_dir));
                }
            }
        }
    }
}

pub(super) fn kind_of(stat: &Stat) -> Kind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::Regular,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        _ => Kind::Other,
    }
}

/// Reads extended attributes without unreadable ones; many file systems have none.
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
