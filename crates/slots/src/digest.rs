//! SHA-256 digests as OCI writes them, and readers that compute one on the way.

use std::fmt;
use std::io::{self, Read};

use aws_lc_rs::digest::{Context, SHA256, SHA256_OUTPUT_LEN};
use serde::{Deserialize, Serialize};

const PREFIX: &str = "sha256:";

/// A SHA-256 digest, written `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest([u8; SHA256_OUTPUT_LEN]);

/// A text that is no SHA-256 digest.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a digest of the form sha256:HEX")]
pub struct BadDigest(String);

impl Digest {
    /// Computes the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(bytes);
        hasher.finish()
    }

    /// Computes the digest of all that `reader` returns.
    pub fn of_reader(reader: impl Read) -> io::Result<Self> {
        let mut reader = Hashing::new(reader);
        io::copy(&mut reader, &mut io::sink())?;
        Ok(reader.finish().0)
    }

    /// The 64 hexadecimal digits.
    pub fn hex(&self) -> String {
        use fmt::Write as _;
        let mut text = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Parses `sha256:HEX`. Only lower-case digits are valid in OCI.
    pub fn parse(text: &str) -> Result<Self, BadDigest> {
        let bad = || BadDigest(text.chars().take(80).collect());
        let hex = text.strip_prefix(PREFIX).ok_or_else(bad)?.as_bytes();
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        if hex.len() != 2 * bytes.len() {
            return Err(bad());
        }
        for (byte, pair) in bytes.iter_mut().zip(hex.chunks_exact(2)) {
            let [Some(high), Some(low)] = [digit(pair[0]), digit(pair[1])] else {
                return Err(bad());
            };
            *byte = high << 4 | low;
        }
        Ok(Self(bytes))
    }
}

fn digit(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PREFIX}{}", self.hex())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl TryFrom<String> for Digest {
    type Error = BadDigest;

    fn try_from(text: String) -> Result<Self, BadDigest> {
        Self::parse(&text)
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.to_string()
    }
}

pub(crate) struct Hasher(Context);

impl Hasher {
    pub(crate) fn new() -> Self {
        Self(Context::new(&SHA256))
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    pub(crate) fn finish(self) -> Digest {
        let mut bytes = [0; SHA256_OUTPUT_LEN];
        bytes.copy_from_slice(self.0.finish().as_ref());
        Digest(bytes)
    }
}

/// A reader that hashes and counts what passes.
pub(crate) struct Hashing<R> {
    inner: R,
    hasher: Hasher,
    count: u64,
}

impl<R: Read> Hashing<R> {
    pub(crate) fn new(inner: R) -> Self {
        Self {
            inner,
            hasher: Hasher::new(),
            count: 0,
        }
    }

    /// The digest and the number of bytes read so far.
    pub(crate) fn finish(self) -> (Digest, u64) {
        (self.hasher.finish(), self.count)
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.count += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn the_digest_of_abc_is_the_published_one() {
        assert_eq!(Digest::of(b"abc").to_string(), ABC);
        assert_eq!(Digest::of_reader(&b"abc"[..]).unwrap().to_string(), ABC);
        assert_eq!(Digest::parse(ABC).unwrap(), Digest::of(b"abc"));
    }

    #[test]
    fn other_texts_are_refused() {
        for bad in [
            "",
            "sha256:",
            "sha512:00",
            &ABC[7..],
            &ABC.to_uppercase(),
            "sha256:../../etc",
        ] {
            assert!(Digest::parse(bad).is_err(), "{bad}");
        }
        assert!(Digest::parse(&format!("{ABC}0")).is_err());
    }
}
