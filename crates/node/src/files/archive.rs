//! A tree as a gzip-compressed tar archive in the PAX format.
//!
//! Unreadable files and sockets are left out and reported at the end. A file that shrinks or grows
//! while it is copied never corrupts the archive: its entry keeps the length it started with. What an
//! entry is, is decided by its open descriptor, so that renaming under the traversal brings nothing
//! into the archive that is not in the tree.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use flate2::write::GzEncoder;
use flate2::{Compression, GzBuilder};
use mainstay_archive::{Content, Member, Segment, Time, Writer, holes_of, root_field};
use rustix::fs::{FileType, Stat, fstat, major, minor};

use super::content::ExactContent;
use super::descent::{Descent, Step};
use super::walk::xattrs_of;
use super::xattrs::XattrReader;

/// The bytes read from a file with size 0, as those of the kernel have.
const MAX_UNSIZED_BYTES: u64 = 4 << 20;
/// The number of omitted entries reported by name.
const MAX_NAMED: usize = 16;
/// The memory for names of hard links; files met after that are archived once per name.
const MAX_LINK_BYTES: usize = 4 << 20;
/// The memory of such a name besides its bytes.
const LINK_OVERHEAD: usize = 80;

/// Entries that are missing or incomplete in the archive.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Left {
    named: Vec<String>,
    more: usize,
}

impl Left {
    fn add(&mut self, path: &Path, why: &dyn std::fmt::Display) {
        if self.named.len() < MAX_NAMED {
            let path = mainstay_paths::escape(path.as_os_str().as_bytes());
            self.named.push(format!("{path}: {why}"));
        } else {
            self.more += 1;
        }
    }

    /// Returns one line, or `None` if nothing is missing.
    pub fn summary(&self) -> Option<String> {
        let text = self.named.join("; ");
        match (text.is_empty(), self.more) {
            (true, _) => None,
            (false, 0) => Some(text),
            (false, more) => Some(format!("{text}; and {more} more")),
        }
    }
}

/// Archives `root` into `out`. An error means that the archive is incomplete.
pub fn pack(root: &Path, out: impl Write) -> io::Result<Left> {
    let mut descent = Descent::new(root)?;
    let mut xattrs = XattrReader::default();
    let first = descent.step();
    let mut gzip = GzBuilder::new();
    if let Some(Step::Met(Ok(stat))) = &first
        && FileType::from_raw_mode(stat.st_mode) == FileType::Directory
    {
        // Clients of this API unpack into a directory that exists: it is no entry of its own.
        let xattrs = xattrs_of(&descent, &mut xattrs).unwrap_or_default();
        gzip = gzip.extra(root_field(&member(
            &descent,
            stat,
            Content::Directory,
            xattrs,
        )));
    }
    let mut packing = Packing {
        archive: Writer::new(gzip.write(out, Compression::fast())),
        left: Left::default(),
        links: Links::default(),
        xattrs,
    };
    let mut next = first;
    while let Some(step) = next {
        match step {
            Step::Left => {}
            Step::Unreadable(error) | Step::Met(Err(error)) => {
                packing.left.add(descent.path(), &error);
            }
            Step::Met(Ok(stat)) => packing.add(&mut descent, &stat)?,
        }
        next = descent.step();
    }
    packing.archive.finish()?.finish()?.flush()?;
    Ok(packing.left)
}

struct Packing<W: Write> {
    archive: Writer<GzEncoder<W>>,
    left: Left,
    links: Links,
    xattrs: XattrReader,
}

impl<W: Write> Packing<W> {
    fn add(&mut self, descent: &mut Descent, stat: &Stat) -> io::Result<()> {
        let kind = FileType::from_raw_mode(stat.st_mode);
        if kind == FileType::Directory {
            descent.enter();
            if descent.depth() == 0 {
                return Ok(());
            }
        }
        match self.member(descent, stat, kind) {
            Ok(Source::Empty(member)) => {
                self.archive.append(&member, io::empty())?;
                self.links.add(stat, &member);
                Ok(())
            }
            Ok(Source::Bytes(member, bytes)) => self.archive.append(&member, bytes.as_slice()),
            Ok(Source::File(member, file, segments)) => {
                let mut content = ExactContent::new(&file, &segments);
                self.archive.append(&member, &mut content)?;
                if let Some(why) = content.failed() {
                    self.left.add(descent.path(), &why);
                }
                Ok(())
            }
            Err(error) => {
                self.left.add(descent.path(), &error);
                Ok(())
            }
        }
    }

    fn member(&mut self, descent: &Descent, stat: &Stat, kind: FileType) -> io::Result<Source> {
        let content = match kind {
            FileType::RegularFile => return self.file(descent),
            FileType::Directory => Content::Directory,
            FileType::Fifo => Content::Fifo,
            FileType::Symlink => Content::Symlink {
                target: descent.read_link()?,
            },
            FileType::CharacterDevice => Content::CharDevice {
                major: major(stat.st_rdev),
                minor: minor(stat.st_rdev),
            },
            FileType::BlockDevice => Content::BlockDevice {
                major: major(stat.st_rdev),
                minor: minor(stat.st_rdev),
            },
            FileType::Socket => return Err(io::Error::other("sockets cannot be archived")),
            FileType::Unknown => return Err(io::Error::other("unknown kind of file")),
        };
        if let Some(link) = self.links.find(descent, stat) {
            return Ok(Source::Empty(link));
        }
        let xattrs = xattrs_of(descent, &mut self.xattrs)?;
        Ok(Source::Empty(member(descent, stat, content, xattrs)))
    }

    fn file(&mut self, descent: &Descent) -> io::Result<Source> {
        let file = descent.open()?;
        let stat = fstat(&file)?;
        // Not what `stat` said before it was opened: it may have been replaced meanwhile.
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("replaced while it was copied"));
        }
        if let Some(link) = self.links.find(descent, &stat) {
            return Ok(Source::Empty(link));
        }
        let xattrs = self.xattrs.of_file(&file)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        if size == 0 {
            let mut bytes = Vec::new();
            (&file).take(MAX_UNSIZED_BYTES).read_to_end(&mut bytes)?;
            let content = Content::Regular {
                size: bytes.len() as u64,
            };
            let member = member(descent, &stat, content, xattrs);
            self.links.add(&stat, &member);
            return Ok(Source::Bytes(member, bytes));
        }
        let allocated = u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512);
        let holes = (allocated < size).then(|| holes_of(&file, size)).flatten();
        let (content, segments) = match holes {
            Some(segments) => {
                let content = Content::Sparse {
                    size,
                    segments: segments.clone(),
                };
                (content, segments)
            }
            None => {
                let whole = Segment {
                    offset: 0,
                    length: size,
                };
                (Content::Regular { size }, vec![whole])
            }
        };
        let member = member(descent, &stat, content, xattrs);
        self.links.add(&stat, &member);
        Ok(Source::File(member, file, segments))
    }
}

/// A member, and where its data come from.
enum Source {
    Empty(Member),
    Bytes(Member, Vec<u8>),
    File(Member, File, Vec<Segment>),
}

fn member(
    descent: &Descent,
    stat: &Stat,
    content: Content,
    xattrs: super::xattrs::Xattrs,
) -> Member {
    Member {
        name: name(descent),
        content,
        mode: stat.st_mode & 0o7777,
        uid: stat.st_uid,
        gid: stat.st_gid,
        modified: Time {
            seconds: stat.st_mtime,
            nanoseconds: u32::try_from(stat.st_mtime_nsec).unwrap_or(0),
        },
        xattrs,
    }
}

/// The name in the archive: the path below the root, or the base name of a root that is no directory.
fn name(descent: &Descent) -> Vec<u8> {
    let below = descent.relative().as_os_str().as_bytes();
    if !below.is_empty() {
        return below.to_vec();
    }
    let name = descent.path().file_name().unwrap_or_default();
    name.as_bytes().to_vec()
}

/// Names of files with several links, until the last of them was met.
#[derive(Debug, Default)]
struct Links {
    met: HashMap<(u64, u64), Link>,
    bytes: usize,
}

#[derive(Debug)]
struct Link {
    name: Vec<u8>,
    /// The number of names not met yet.
    left: u64,
}

impl Links {
    /// Returns the entry as a link to a name that is in the archive.
    fn find(&mut self, descent: &Descent, stat: &Stat) -> Option<Member> {
        if stat.st_nlink < 2 {
            return None;
        }
        let key = (stat.st_dev, stat.st_ino);
        let link = self.met.get_mut(&key)?;
        link.left = link.left.saturating_sub(1);
        let target = link.name.clone();
        if link.left == 0 {
            self.bytes = self.bytes.saturating_sub(target.len() + LINK_OVERHEAD);
            self.met.remove(&key);
        }
        let content = Content::HardLink { target };
        Some(member(descent, stat, content, Vec::new()))
    }

    /// Remembers the first name of a file that has several.
    fn add(&mut self, stat: &Stat, member: &Member) {
        let linkable = !matches!(
            member.content,
            Content::Directory | Content::HardLink { .. }
        );
        let bytes = member.name.len() + LINK_OVERHEAD;
        if stat.st_nlink < 2 || !linkable || self.bytes + bytes > MAX_LINK_BYTES {
            return;
        }
        self.bytes += bytes;
        let link = Link {
            name: member.name.clone(),
            left: stat.st_nlink - 1,
        };
        self.met.insert((stat.st_dev, stat.st_ino), link);
    }
}
