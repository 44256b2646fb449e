//! The files of an OCI layout, in a directory or in a tar archive.
//!
//! A directory is read through one descriptor, without symbolic links and never outside. An
//! archive is indexed once and then read in place; one that is compressed with gzip is unpacked to
//! a temporary file first, because it cannot be read at random.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, OpenOptionsExt as _};
use std::path::Path;

use flate2::read::MultiGzDecoder;
use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};

use super::error::ImageError;
use super::oci::{INDEX_FILE, LAYOUT_FILE};

/// Bytes of an archive after decompression.
pub(super) const MAX_ARCHIVE_BYTES: u64 = 2 << 30;
/// Entries of an archive.
pub(super) const MAX_ENTRIES: usize = 4096;

const BLOBS: &str = "blobs/sha256/";
const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];

#[derive(Debug)]
pub(super) enum Source {
    Directory(File),
    Archive(Archive),
}

#[derive(Debug)]
pub(super) struct Archive {
    file: File,
    /// Offset and size of each file of the layout.
    files: HashMap<String, (u64, u64)>,
}

impl Source {
    /// Opens the layout at `path`. `scratch` is a directory for an unpacked archive.
    pub(super) fn open(path: &Path, scratch: &Path) -> Result<Self, ImageError> {
        let mut options = File::options();
        // A FIFO must not block the open.
        options.read(true).custom_flags(libc::O_NONBLOCK);
        let file = options.open(path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => ImageError::NotFound {
                path: path.to_owned(),
            },
            _ => ImageError::Read(error),
        })?;
        let kind = file.metadata().map_err(ImageError::Read)?.file_type();
        if kind.is_dir() {
            return Ok(Self::Directory(file));
        }
        if !kind.is_file() {
            return Err(ImageError::NeitherFileNorDirectory {
                path: path.to_owned(),
            });
        }
        let mut magic = [0; 2];
        let is_gzip = file.read_exact_at(&mut magic, 0).is_ok() && magic == GZIP_MAGIC;
        let file = if is_gzip {
            unpacked(&file, scratch)?
        } else {
            file
        };
        Archive::index(file).map(Self::Archive)
    }

    /// Opens the file `name` of the layout. Returns it with its size.
    pub(super) fn file(&self, name: &str) -> Result<(Box<dyn Read + '_>, u64), ImageError> {
        let missing = || ImageError::Missing {
            name: name.to_owned(),
        };
        match self {
            Self::Directory(directory) => {
                let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
                let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
                let opened = openat2(directory, name, flags, Mode::empty(), resolve);
                let file = File::from(opened.map_err(|error| match error {
                    rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR => missing(),
                    other => ImageError::Read(other.into()),
                })?);
                let metadata = file.metadata().map_err(ImageError::Read)?;
                if !metadata.is_file() {
                    return Err(missing());
                }
                Ok((Box::new(file), metadata.len()))
            }
            Self::Archive(archive) => {
                let (offset, size) = *archive.files.get(name).ok_or_else(missing)?;
                let reader = At {
                    file: &archive.file,
                    offset,
                };
                Ok((Box::new(reader.take(size)), size))
            }
        }
    }
}

/// Decompresses an archive to a file without a name in `scratch`.
fn unpacked(file: &File, scratch: &Path) -> Result<File, ImageError> {
    let write = |source| ImageError::Write {
        path: scratch.to_owned(),
        source,
    };
    let mut unpacked = crate::scratch_file(scratch).map_err(write)?;
    let mut decoder = MultiGzDecoder::new(file).take(MAX_ARCHIVE_BYTES + 1);
    let mut buffer = vec![0; 1 << 16];
    let mut written = 0;
    loop {
        let count = decoder.read(&mut buffer).map_err(ImageError::Archive)?;
        if count == 0 {
            break;
        }
        written += count as u64;
        if written > MAX_ARCHIVE_BYTES {
            return Err(ImageError::TooLarge {
                subject: "the archive",
                limit: MAX_ARCHIVE_BYTES,
            });
        }
        io::Write::write_all(&mut unpacked, &buffer[..count]).map_err(write)?;
    }
    Ok(unpacked)
}

impl Archive {
    fn index(mut file: File) -> Result<Self, ImageError> {
        let length = file.seek(SeekFrom::End(0)).map_err(ImageError::Read)?;
        file.rewind().map_err(ImageError::Read)?;
        let mut files = HashMap::new();
        let mut archive = tar::Archive::new(&file);
        // Raw: extended headers are entries like others instead of names and sizes that the
        // library collects in memory.
        let entries = archive.entries_with_seek().map_err(ImageError::Archive)?;
        for (count, entry) in entries.raw(true).enumerate() {
            if count >= MAX_ENTRIES {
                return Err(ImageError::TooManyEntries {
                    subject: "the archive",
                    limit: MAX_ENTRIES,
                });
            }
            let entry = entry.map_err(ImageError::Archive)?;
            let (offset, size) = (entry.raw_file_position(), entry.size());
            if offset.checked_add(size).is_none_or(|end| end > length) {
                return Err(ImageError::Archive(io::ErrorKind::UnexpectedEof.into()));
            }
            let Some(name) = layout_name(&entry.path_bytes()) else {
                continue;
            };
            if !entry.header().entry_type().is_file() {
                continue;
            }
            if files.insert(name.clone(), (offset, size)).is_some() {
                return Err(ImageError::Duplicate { name });
            }
        }
        Ok(Self { file, files })
    }
}

/// The name of an archive entry if it is one of a layout's files.
fn layout_name(path: &[u8]) -> Option<String> {
    let name = std::str::from_utf8(path).ok()?;
    let name = name.strip_prefix("./").unwrap_or(name);
    let is_blob = |hex: &str| hex.len() == 64 && hex.bytes().all(|b| b.is_ascii_hexdigit());
    let known =
        [LAYOUT_FILE, INDEX_FILE].contains(&name) || name.strip_prefix(BLOBS).is_some_and(is_blob);
    known.then(|| name.to_owned())
}

/// Reads a file from an offset without moving a position that others share.
struct At<'a> {
    file: &'a File,
    offset: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read_at(buffer, self.offset)?;
        self.offset += count as u64;
        Ok(count)
    }
}
