//! Uploads of images: a file in `incoming` that is named after its content when it is complete, so
//! that no other upload can take its place before it is used.

use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::digest::Hasher;
use crate::{Digest, ImageError, Slots, SlotsError};

/// Bytes of an upload.
pub const MAX_UPLOAD_BYTES: u64 = 1 << 30;
/// Complete uploads that wait for their upgrade; the oldest are removed.
const MAX_WAITING: usize = 2;
const SUFFIX: &str = ".image";

/// A complete upload.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uploaded {
    /// The file, for [`Slots::receive`].
    pub path: PathBuf,
    /// The digest of the file.
    pub digest: Digest,
    /// Its size.
    pub size_bytes: u64,
}

/// An upload; removed when dropped unless it is finished.
pub struct Upload {
    directory: PathBuf,
    path: PathBuf,
    file: File,
    hasher: Hasher,
    size_bytes: u64,
}

impl Slots {
    /// Begins an upload. There must be one at a time.
    pub fn upload(&self) -> Result<Upload, SlotsError> {
        let directory = self.incoming()?;
        let path = directory.join("upload.part");
        let _ = fs::remove_file(&path);
        let mut options = OpenOptions::new();
        options.write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(|source| SlotsError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(Upload {
            directory,
            path,
            file,
            hasher: Hasher::new(),
            size_bytes: 0,
        })
    }

    /// Removes an upload that was used. Other files stay.
    pub fn remove_upload(&self, path: &Path) {
        if let Ok(incoming) = self.incoming()
            && path.parent() == Some(&incoming)
            && is_upload(path)
        {
            let _ = fs::remove_file(path);
        }
    }
}

fn is_upload(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default();
    name.as_encoded_bytes().ends_with(SUFFIX.as_bytes())
}

impl Upload {
    /// Appends to the file.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), SlotsError> {
        self.size_bytes += bytes.len() as u64;
        if self.size_bytes > MAX_UPLOAD_BYTES {
            return Err(SlotsError::Image(ImageError::TooLarge {
                subject: "the archive",
                limit: MAX_UPLOAD_BYTES,
            }));
        }
        self.hasher.update(bytes);
        let written = self.file.write_all(bytes);
        written.map_err(|source| SlotsError::Write {
            path: self.path.clone(),
            source,
        })
    }

    /// Names the file after its content.
    pub fn finish(mut self) -> Result<Uploaded, SlotsError> {
        let digest = std::mem::replace(&mut self.hasher, Hasher::new()).finish();
        self.remove_oldest();
        let path = self.directory.join(format!("{}{SUFFIX}", digest.hex()));
        fs::rename(&self.path, &path).map_err(|source| SlotsError::Write {
            path: path.clone(),
            source,
        })?;
        Ok(Uploaded {
            path,
            digest,
            size_bytes: self.size_bytes,
        })
    }

    fn remove_oldest(&self) {
        let entries = fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten();
        let mut waiting: Vec<_> = entries
            .map(|entry| entry.path())
            .filter(|path| is_upload(path))
            .map(|path| (fs::metadata(&path).and_then(|it| it.modified()).ok(), path))
            .collect();
        waiting.sort();
        let excess = (waiting.len() + 1).saturating_sub(MAX_WAITING);
        for (_, path) in waiting.into_iter().take(excess) {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        // Renamed already if it was finished.
        let _ = fs::remove_file(&self.path);
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upload")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn uploads_are_named_after_their_content_and_bounded_in_number() {
        let dir = TempDir::new().unwrap();
        let slots = Slots::of(dir.path());
        let upload = |content: &[u8]| {
            let mut upload = slots.upload().unwrap();
            upload.write(content).unwrap();
            upload.finish().unwrap()
        };
        let first = upload(b"one");
        assert_eq!(first.digest, Digest::of(b"one"));
        assert_eq!(fs::read(&first.path).unwrap(), b"one");
        let others = [upload(b"two"), upload(b"three")];
        assert!(!first.path.exists(), "the oldest is removed");
        assert!(others.iter().all(|it| it.path.exists()));
        slots.remove_upload(&others[0].path);
        assert!(!others[0].path.exists());
        drop(slots.upload().unwrap());
        let left = fs::read_dir(slots.incoming().unwrap()).unwrap().count();
        assert_eq!(left, 1, "an upload that is not finished leaves nothing");
    }

    #[test]
    fn only_uploads_are_removed() {
        let dir = TempDir::new().unwrap();
        let slots = Slots::of(dir.path());
        let outside = dir.path().join("mine.image");
        fs::write(&outside, "").unwrap();
        slots.remove_upload(&outside);
        assert!(outside.exists());
    }
}
