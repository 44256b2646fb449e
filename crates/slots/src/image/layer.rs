//! The binary in the layer of an image.

use std::fs::File;
use std::io::{self, Read, Write as _};
use std::path::Path;

use flate2::read::MultiGzDecoder;

use super::error::ImageError;
use super::oci::{Compression, Descriptor};
use super::source::{MAX_ARCHIVE_BYTES, MAX_ENTRIES};
use crate::Digest;
use crate::digest::Hashing;

/// Bytes of the binary. A debug build has 120 MB.
pub(crate) const MAX_BINARY_BYTES: u64 = 512 << 20;

/// Copies the regular file `path` of the layer to `output`, and checks the size and the digests of
/// the whole layer, compressed and not. Returns the digest and the size of the file.
pub(super) fn extract(
    blob: impl Read,
    descriptor: &Descriptor,
    compression: Compression,
    diff_id: Digest,
    path: &str,
    (output, output_path): (&mut File, &Path),
) -> Result<(Digest, u64), ImageError> {
    let mut blob = Hashing::new(blob);
    let mut plain: Hashing<Box<dyn Read + '_>> = Hashing::new(match compression {
        Compression::None => Box::new((&mut blob).take(MAX_ARCHIVE_BYTES + 1)),
        Compression::Gzip => Box::new(MultiGzDecoder::new(&mut blob).take(MAX_ARCHIVE_BYTES + 1)),
    });
    let found = find(&mut plain, path, output, output_path);
    // Whatever the archive says, bytes that are not those of the descriptor are the first reason.
    let drained = io::copy(&mut plain, &mut io::sink());
    let (plain_digest, plain_size) = plain.finish();
    if plain_size > MAX_ARCHIVE_BYTES {
        return Err(ImageError::TooLarge {
            subject: "the layer",
            limit: MAX_ARCHIVE_BYTES,
        });
    }
    // Padding after the end of the archive, or what a broken archive left.
    io::copy(&mut blob, &mut io::sink()).map_err(ImageError::Read)?;
    let (digest, _) = blob.finish();
    check("the layer", descriptor.digest, digest)?;
    let found = found?;
    drained.map_err(ImageError::Archive)?;
    check("the uncompressed layer", diff_id, plain_digest)?;
    found.ok_or_else(|| ImageError::NoBinary {
        path: path.to_owned(),
    })
}

fn check(subject: &'static str, expected: Digest, found: Digest) -> Result<(), ImageError> {
    if expected == found {
        return Ok(());
    }
    Err(ImageError::WrongDigest {
        subject,
        expected,
        found,
    })
}

/// Copies the first regular file `path` of the archive.
fn find(
    layer: impl Read,
    path: &str,
    output: &mut File,
    output_path: &Path,
) -> Result<Option<(Digest, u64)>, ImageError> {
    let mut archive = tar::Archive::new(layer);
    let entries = archive.entries().map_err(ImageError::Archive)?;
    for (count, entry) in entries.raw(true).enumerate() {
        if count >= MAX_ENTRIES {
            return Err(ImageError::TooManyEntries {
                subject: "the layer",
                limit: MAX_ENTRIES,
            });
        }
        let mut entry = entry.map_err(ImageError::Archive)?;
        let name = entry.path_bytes();
        let name = name.strip_prefix(b"./").unwrap_or(&name);
        if name != path.as_bytes() || !entry.header().entry_type().is_file() {
            continue;
        }
        let size = entry.size();
        if size > MAX_BINARY_BYTES {
            return Err(ImageError::TooLarge {
                subject: "the binary",
                limit: MAX_BINARY_BYTES,
            });
        }
        let mut content = Hashing::new(&mut entry);
        copy(&mut content, output, output_path)?;
        let (digest, copied) = content.finish();
        if copied != size {
            let truncated = io::ErrorKind::UnexpectedEof.into();
            return Err(ImageError::Archive(truncated));
        }
        return Ok(Some((digest, size)));
    }
    Ok(None)
}

/// Copies and tells errors of the image from those of the disk.
fn copy(content: &mut impl Read, output: &mut File, path: &Path) -> Result<(), ImageError> {
    let mut buffer = vec![0; 1 << 16];
    loop {
        let count = content.read(&mut buffer).map_err(ImageError::Archive)?;
        if count == 0 {
            return Ok(());
        }
        let written = output.write_all(&buffer[..count]);
        written.map_err(|source| ImageError::Write {
            path: path.to_owned(),
            source,
        })?;
    }
}
