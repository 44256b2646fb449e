//! A tree as a gzip-compressed tar archive.
//!
//! Unreadable files are left out and reported at the end. A file that shrinks or grows while it is
//! copied never corrupts the archive: its entry keeps the length it started with.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::walk::{Entry, Kind, Walk, WalkOptions};

/// The bytes read from a file with size 0, as those of the kernel have.
const MAX_UNSIZED_BYTES: u64 = 4 << 20;
/// The number of omitted entries reported by name.
const TOLD: usize = 16;

/// Entries that are missing or incomplete in the archive.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Left {
    told: Vec<String>,
    more: usize,
}

impl Left {
    fn add(&mut self, path: &Path, why: &dyn std::fmt::Display) {
        if self.told.len() < TOLD {
            self.told.push(format!("{}: {why}", path.display()));
        } else {
            self.more += 1;
        }
    }

    /// Returns one line, or `None` if nothing is missing.
    pub fn summary(&self) -> Option<String> {
        let text = self.told.join("; ");
        match (text.is_empty(), self.more) {
            (true, _) => None,
            (false, 0) => Some(text),
            (false, more) => Some(format!("{text}; and {more} more")),
        }
    }
}

/// Archives `root` into `out`. An error means that the archive is incomplete.
pub fn pack(root: &Path, out: impl Write) -> io::Result<Left> {
    let walk = Walk::new(root, WalkOptions::default())?;
    let mut left = Left::default();
    let mut archive = Builder::new(GzEncoder::new(out, Compression::fast()));
    for entry in walk {
        add(&mut archive, &entry, &mut left)?;
    }
    archive.into_inner()?.finish()?.flush()?;
    Ok(left)
}

fn add<W: Write>(archive: &mut Builder<W>, entry: &Entry, left: &mut Left) -> io::Result<()> {
    let facts = match &entry.facts {
        Ok(facts) => facts,
        Err(error) => {
            left.add(&entry.path, error);
            return Ok(());
        }
    };
    let mut header = Header::new_gnu();
    header.set_mode(facts.mode & 0o7777);
    header.set_uid(facts.uid.into());
    header.set_gid(facts.gid.into());
    header.set_mtime(u64::try_from(facts.modified).unwrap_or(0));
    header.set_size(0);
    match (facts.kind, &facts.link) {
        (Kind::Directory, _) if entry.relative == Path::new(".") => Ok(()),
        (Kind::Directory, _) => {
            header.set_entry_type(EntryType::Directory);
            let mut name = entry.relative.clone().into_os_string();
            name.push("/");
            archive.append_data(&mut header, PathBuf::from(name), io::empty())
        }
        (Kind::Symlink, Some(target)) => {
            header.set_entry_type(EntryType::Symlink);
            archive.append_link(&mut header, &entry.relative, target)
        }
        (Kind::Regular, _) => add_file(archive, header, entry, left),
        _ => {
            left.add(&entry.path, &"neither a file, a directory nor a link");
            Ok(())
        }
    }
}

fn add_file<W: Write>(
    archive: &mut Builder<W>,
    mut header: Header,
    entry: &Entry,
    left: &mut Left,
) -> io::Result<()> {
    let (file, length) = match open(&entry.path) {
        Ok(opened) => opened,
        Err(error) => {
            left.add(&entry.path, &error);
            return Ok(());
        }
    };
    header.set_entry_type(EntryType::Regular);
    if length == 0 {
        let mut content = Vec::new();
        if let Err(error) = file.take(MAX_UNSIZED_BYTES).read_to_end(&mut content) {
            left.add(&entry.path, &error);
            return Ok(());
        }
        header.set_size(content.len() as u64);
        return archive.append_data(&mut header, &entry.relative, content.as_slice());
    }
    header.set_size(length);
    let mut exact = Exact {
        file,
        left: length,
        failed: None,
    };
    archive.append_data(&mut header, &entry.relative, &mut exact)?;
    if let Some(why) = exact.failed {
        left.add(&entry.path, &why);
    }
    Ok(())
}

fn open(path: &Path) -> io::Result<(File, u64)> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let file = File::options()
        .read(true)
        .custom_flags(i32::try_from(flags.bits()).unwrap_or(0))
        .open(path)?;
    let length = file.metadata()?.len();
    Ok((file, length))
}

/// Yields exactly the bytes announced in the entry's header: truncated if the file has grown, padded
/// with zeros if it has shrunk.
struct Exact {
    file: File,
    left: u64,
    failed: Option<String>,
}

impl Read for Exact {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let buffer = &mut buffer[..most];
        if buffer.is_empty() {
            return Ok(0);
        }
        let read = match &self.failed {
            Some(_) => 0,
            None => match self.file.read(buffer) {
                Ok(0) => {
                    self.failed = Some("shrank while it was copied".to_owned());
                    0
                }
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => return Err(error),
                Err(error) => {
                    self.failed = Some(error.to_string());
                    0
                }
            },
        };
        let given = if read == 0 {
            buffer.fill(0);
            buffer.len()
        } else {
            read
        };
        self.left -= given as u64;
        Ok(given)
    }
}
