//! Unpacking an archive to a directory.
//!
//! The archive may be hostile. Every component of a name is opened relative to the directory before
//! it and never through a symbolic link, an existing file is replaced and never written through, and
//! what would leave the directory is dropped and reported. Owners, modes, attributes and times are
//! set through descriptors; those of a directory after everything below it.

use std::ffi::OsStr;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{
    AtFlags, CWD, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags,
};
use rustix::io::Errno;

use crate::{Content, Member, Reader, Report, Segment, Time};

const COPY_BYTES: usize = 256 << 10;
/// A directory and a file while they are unpacked: nobody else may look inside.
const PARTIAL_DIR: Mode = Mode::RWXU;
const PARTIAL_FILE: Mode = Mode::RUSR.union(Mode::WUSR);

/// Unpacks `archive` to the existing directory `target`, which becomes like `root` if that is given. An
/// error means that the archive is
/// unreadable or that nothing more can be written; a member that fails for itself is reported.
pub fn unpack(archive: impl Read, target: &Path, root: Option<&Member>) -> io::Result<Report> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let mut unpacking = Unpacking {
        root: rustix::fs::openat(CWD, target, flags, Mode::empty())?,
        parent: None,
        pending: Vec::new(),
        report: Report::default(),
        buffer: vec![0; COPY_BYTES],
    };
    let mut reader = Reader::new(archive);
    while let Some(member) = reader.next_member()? {
        match unpacking.add(&member, &mut reader) {
            Ok(()) => {}
            Err(Failed::Member(why)) => unpacking.report.add_missing(&member.name, &why),
            Err(Failed::Archive(error)) => return Err(error),
        }
    }
    unpacking.leave(&[]);
    if let Some(root) = root {
        let dir = unpacking.root.try_clone()?;
        if let Err(Failed::Member(why)) = unpacking.restore(dir.as_fd(), root) {
            unpacking.report.add_missing(b".", &why);
        }
    }
    Ok(unpacking.report)
}

struct Unpacking {
    root: OwnedFd,
    /// The directory of the last member; the next one is likely in it.
    parent: Option<(Vec<Vec<u8>>, OwnedFd)>,
    /// Directories on the path of the last member, to be restored when they are left.
    pending: Vec<(Vec<Vec<u8>>, Member)>,
    report: Report,
    buffer: Vec<u8>,
}

enum Failed {
    /// This member cannot be unpacked.
    Member(String),
    /// Nothing more can be unpacked.
    Archive(io::Error),
}

impl From<Errno> for Failed {
    fn from(errno: Errno) -> Self {
        io::Error::from(errno).into()
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull
            | io::ErrorKind::QuotaExceeded
            | io::ErrorKind::ReadOnlyFilesystem => Self::Archive(error),
            _ => Self::Member(error.to_string()),
        }
    }
}

impl Unpacking {
    fn add(&mut self, member: &Member, data: &mut impl Read) -> Result<(), Failed> {
        let path = components(&member.name)?;
        let Some((name, parents)) = path.split_last() else {
            // The root of the archive is the target itself.
            return Ok(());
        };
        self.leave(parents);
        self.enter(parents)?;
        if member.content == Content::Directory {
            make_directory(self.dir(), name)?;
            self.pending.push((path, member.clone()));
            return Ok(());
        }
        match &member.content {
            Content::Regular { size } => {
                let segment = Segment {
                    offset: 0,
                    length: *size,
                };
                self.add_file(name, member, data, *size, &[segment])
            }
            Content::Sparse { size, segments } => {
                self.add_file(name, member, data, *size, segments)
            }
            Content::HardLink { target } => self.add_hard_link(name, parents, target),
            _ => self.add_special(name, member),
        }
    }

    /// The directory of the member that is being unpacked.
    fn dir(&self) -> BorrowedFd<'_> {
        match &self.parent {
            Some((_, dir)) => dir.as_fd(),
            None => self.root.as_fd(),
        }
    }

    /// Makes the directory at `path` the current one, creating what is missing of it.
    fn enter(&mut self, path: &[Vec<u8>]) -> Result<(), Failed> {
        if path.is_empty() {
            self.parent = None;
            return Ok(());
        }
        let (mut dir, below) = match self.parent.take() {
            Some((current, dir)) if path.starts_with(&current) => {
                let below = path.get(current.len()..).unwrap_or_default();
                (Some(dir), below)
            }
            _ => (None, path),
        };
        for name in below {
            let at = dir.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
            dir = Some(enter_directory(at, name)?);
        }
        self.parent = dir.map(|dir| (path.to_vec(), dir));
        Ok(())
    }

    /// Restores the directories that `path` is not below of, the deepest first.
    fn leave(&mut self, path: &[Vec<u8>]) {
        while let Some((pending, _)) = self.pending.last()
            && !path.starts_with(pending)
            && let Some((pending, member)) = self.pending.pop()
        {
            let restored = self.enter(&pending).and_then(|()| {
                // Not the descriptor of `enter`, which only leads further.
                let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let dir = rustix::fs::openat(self.dir(), ".", flags, Mode::empty())?;
                self.restore(dir.as_fd(), &member)
            });
            if let Err(Failed::Member(why)) = restored {
                self.report.add_missing(&member.name, &why);
            }
        }
    }

    fn add_file(
        &mut self,
        name: &[u8],
        member: &Member,
        data: &mut impl Read,
        size: u64,
        segments: &[Segment],
    ) -> Result<(), Failed> {
        let flags =
            OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = replacing(self.dir(), name, |dir, name| {
            rustix::fs::openat(dir, name, flags, PARTIAL_FILE)
        })?;
        let mut file = std::fs::File::from(file);
        let mut end = 0;
        for segment in segments {
            if segment.offset > end {
                file.seek(SeekFrom::Start(segment.offset))?;
            }
            self.copy(data, &mut file, segment.length)?;
            end = segment.offset.saturating_add(segment.length);
        }
        if end < size {
            file.set_len(size)?;
        }
        self.restore(file.as_fd(), member)
    }

    fn copy(
        &mut self,
        data: &mut impl Read,
        file: &mut impl Write,
        length: u64,
    ) -> Result<(), Failed> {
        let mut left = length;
        while left > 0 {
            let most = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len());
            let read = match data.read(&mut self.buffer[..most]) {
                Ok(0) => return Err(Failed::Archive(io::ErrorKind::UnexpectedEof.into())),
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(Failed::Archive(error)),
            };
            file.write_all(&self.buffer[..read])?;
            left -= read as u64;
        }
        Ok(())
    }

    fn add_hard_link(
        &mut self,
        name: &[u8],
        parents: &[Vec<u8>],
        target: &[u8],
    ) -> Result<(), Failed> {
        let target = components(target)?;
        let Some((target_name, target_parents)) = target.split_last() else {
            return Err(Failed::Member("hard link to nothing".to_owned()));
        };
        if target_parents == parents && target_name == name {
            return Err(Failed::Member("hard link to itself".to_owned()));
        }
        let mut at = None;
        for parent in target_parents {
            let dir = at
                .as_ref()
                .map_or(self.root.as_fd(), |dir: &OwnedFd| dir.as_fd());
            at = Some(open_directory(dir, parent)?);
        }
        let at = at.as_ref().map_or(self.root.as_fd(), AsFd::as_fd);
        replacing(self.dir(), name, |dir, name| {
            rustix::fs::linkat(at, os(target_name), dir, name, AtFlags::empty())
        })?;
        Ok(())
    }

    /// Symbolic links, FIFOs and devices, which must not be opened.
    fn add_special(&mut self, name: &[u8], member: &Member) -> Result<(), Failed> {
        let make = |kind, major, minor| {
            replacing(self.dir(), name, |dir, name| {
                let device = rustix::fs::makedev(major, minor);
                rustix::fs::mknodat(dir, name, kind, PARTIAL_FILE, device)
            })
        };
        match &member.content {
            Content::Symlink { target } => replacing(self.dir(), name, |dir, name| {
                rustix::fs::symlinkat(os(target), dir, name)
            })?,
            Content::Fifo => make(FileType::Fifo, 0, 0)?,
            Content::CharDevice { major, minor } => {
                make(FileType::CharacterDevice, *major, *minor)?;
            }
            Content::BlockDevice { major, minor } => make(FileType::BlockDevice, *major, *minor)?,
            _ => return Ok(()),
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let entry = rustix::fs::openat(self.dir(), os(name), flags, Mode::empty())?;
        self.restore(entry.as_fd(), member)
    }

    /// Restores everything but the content. What the system denies is reported.
    fn restore(&mut self, entry: BorrowedFd<'_>, member: &Member) -> Result<(), Failed> {
        let is_link = matches!(member.content, Content::Symlink { .. });
        // -1 is no ID.
        let owned = member.uid != u32::MAX && member.gid != u32::MAX && {
            let (uid, gid) = (Uid::from_raw(member.uid), Gid::from_raw(member.gid));
            rustix::fs::chownat(entry, "", Some(uid), Some(gid), AtFlags::EMPTY_PATH).is_ok()
        };
        if !owned {
            self.report.owners += 1;
        }
        // After the owner, which resets them; for another owner they would mean something else.
        let mut mode = member.mode;
        if !owned && mode & 0o6000 != 0 {
            mode &= !0o6000;
            self.report.special_bits += 1;
        }
        let path = proc_path(entry);
        if !is_link {
            rustix::fs::chmodat(CWD, &path, Mode::from_raw_mode(mode), AtFlags::empty())?;
        }
        for (name, value) in &member.xattrs {
            let set = rustix::fs::setxattr(&path, name.as_slice(), value, XattrFlags::empty());
            if let Err(errno) = set {
                self.report.add_xattr(name, &io::Error::from(errno));
            }
        }
        let Time {
            seconds,
            nanoseconds,
        } = member.modified;
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: rustix::fs::UTIME_OMIT,
            },
            last_modification: Timespec {
                tv_sec: seconds,
                tv_nsec: nanoseconds.into(),
            },
        };
        if rustix::fs::utimensat(CWD, &path, &times, AtFlags::empty()).is_err() {
            self.report.times += 1;
        }
        Ok(())
    }
}

/// Splits a name; refuses one that could lead out of the target.
fn components(name: &[u8]) -> Result<Vec<Vec<u8>>, Failed> {
    let refused = |why: &str| Err(Failed::Member(format!("dropped: {why}")));
    if name.starts_with(b"/") {
        return refused("its path is absolute");
    }
    if name.is_empty() || name.contains(&0) {
        return refused("it has no valid name");
    }
    let mut path = Vec::new();
    for component in name.split(|byte| *byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." => return refused("its path leads upwards"),
            name => path.push(name.to_vec()),
        }
    }
    Ok(path)
}

/// Opens a directory, which is created if it does not exist.
fn enter_directory(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Failed> {
    match try_open_directory(at, name) {
        Err(Errno::NOENT) => {
            make_directory(at, name)?;
            open_directory(at, name)
        }
        opened => opened.map_err(|errno| unopened(name, errno)),
    }
}

fn open_directory(at: BorrowedFd<'_>, name: &[u8]) -> Result<OwnedFd, Failed> {
    try_open_directory(at, name).map_err(|errno| unopened(name, errno))
}

fn try_open_directory(at: BorrowedFd<'_>, name: &[u8]) -> rustix::io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(at, os(name), flags, Mode::empty())
}

fn unopened(name: &[u8], errno: Errno) -> Failed {
    match errno {
        Errno::LOOP | Errno::NOTDIR => Failed::Member(format!(
            "dropped: its path leads through {}, which is not a directory",
            mainstay_paths::escape(name)
        )),
        errno => errno.into(),
    }
}

fn make_directory(at: BorrowedFd<'_>, name: &[u8]) -> Result<(), Failed> {
    match rustix::fs::mkdirat(at, os(name), PARTIAL_DIR) {
        Err(Errno::EXIST) => open_directory(at, name).map(drop),
        made => Ok(made?),
    }
}

/// Creates an entry in place of the one that has its name.
fn replacing<T>(
    dir: BorrowedFd<'_>,
    name: &[u8],
    create: impl Fn(BorrowedFd<'_>, &OsStr) -> rustix::io::Result<T>,
) -> Result<T, Failed> {
    match create(dir, os(name)) {
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, os(name), AtFlags::empty())?;
            Ok(create(dir, os(name))?)
        }
        created => Ok(created?),
    }
}

fn os(name: &[u8]) -> &OsStr {
    OsStr::from_bytes(name)
}

/// The path by which calls without a descriptor reach an open entry, whatever its kind.
fn proc_path(entry: BorrowedFd<'_>) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", entry.as_raw_fd()))
}
