//! A walk over a tree: depth first, names in byte order, the root first.
//!
//! An unreadable entry is listed with its error, and the walk continues.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, Stat};

use super::descent::{Descent, Step};
use super::xattrs::{XattrReader, Xattrs};

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
    /// Names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
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
    xattrs: XattrReader,
}

impl Walk {
    /// Starts at `root`. A symbolic link is resolved; a missing root is an error.
    pub fn new(root: &Path, options: WalkOptions) -> io::Result<Self> {
        Ok(Self {
            descent: Descent::new(root)?,
            options,
            xattrs: XattrReader::default(),
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

    fn facts(&mut self, stat: &Stat) -> io::Result<Facts> {
        let kind = kind_of(stat);
        let link = match kind {
            Kind::Symlink => {
                let target = self.descent.read_link()?;
                Some(PathBuf::from(OsStr::from_bytes(&target)))
            }
            _ => None,
        };
        let xattrs = if self.options.xattrs && kind != Kind::Symlink {
            xattrs_of(&self.descent, &mut self.xattrs)?
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

/// Reads the attributes of the entry just met, which is not opened for it.
pub(super) fn xattrs_of(descent: &Descent, reader: &mut XattrReader) -> io::Result<Xattrs> {
    let path = descent.held_path()?;
    match descent.depth() {
        0 => reader.of_target(&path),
        _ => reader.of_entry(&path),
    }
}
