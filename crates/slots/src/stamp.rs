//! The build stamp: facts that a binary carries about itself at a place any program can find.
//!
//! The metadata of an upgrade image is written by the builder of the image; the stamp is compiled
//! into the binary. A reader compares the two, so that a node never reports, signs off or refuses a
//! version that the binary is not.

use std::io::{self, Read};

use memchr::memmem;
use serde::{Deserialize, Serialize};

/// Bytes of a stamp.
const STAMP_BYTES: usize = 256;

/// The two halves of the mark before the facts. They are joined at run time: the search must not
/// find its own needle in the binary it is compiled into.
const MARK: [&[u8]; 2] = [b"\x7fMAINSTAY-", b"BUILD-STAMP\x01"];
const MARK_BYTES: usize = MARK[0].len() + MARK[1].len();

/// Facts about a build.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuildFacts {
    /// Without a leading `v`.
    pub version: String,
    /// The commit.
    pub sha: String,
    /// The format version of the state directory that the build writes.
    pub state_format: u64,
}

/// The stamp of a binary: a mark and `version`, `sha` and `state format` as NUL-terminated text.
#[derive(Debug)]
#[repr(transparent)]
pub struct Stamp([u8; STAMP_BYTES]);

impl Stamp {
    /// Makes a stamp at compile time. Facts that do not fit do not compile.
    pub const fn new(version: &str, sha: &str, state_format: u64) -> Self {
        let mut bytes = [0; STAMP_BYTES];
        let mut at = put(&mut bytes, 0, MARK[0]);
        at = put(&mut bytes, at, MARK[1]);
        at = put(&mut bytes, at, version.as_bytes()) + 1;
        at = put(&mut bytes, at, sha.as_bytes()) + 1;
        put_number(&mut bytes, at, state_format);
        Self(bytes)
    }

    /// The facts in the stamp. Reads memory as it is, so that a patched binary reports what its
    /// stamp says.
    pub fn facts(&self) -> Option<BuildFacts> {
        let bytes = std::hint::black_box(&self.0);
        parse(&bytes[MARK_BYTES..])
    }

    /// The bytes as they are in the binary.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Finds the facts in a binary; `None` if it has no stamp. The last stamp counts if there are
    /// several.
    pub fn find(mut binary: impl Read) -> io::Result<Option<BuildFacts>> {
        let mark = MARK.concat();
        let finder = memmem::Finder::new(&mark);
        let mut window = Vec::with_capacity(2 << 20);
        let mut found = None;
        loop {
            let read = (&mut binary).take(1 << 20).read_to_end(&mut window)?;
            let mut start = 0;
            while let Some(at) = finder.find(&window[start..]) {
                let facts = start + at + MARK_BYTES;
                let end = facts + STAMP_BYTES - MARK_BYTES;
                if end > window.len() && read > 0 {
                    break;
                }
                found = parse(&window[facts..end.min(window.len())]).or(found);
                start = facts;
            }
            if read == 0 {
                return Ok(found);
            }
            // Keeps a stamp that goes on in the next part, and no stamp that was seen.
            let keep = window.len().saturating_sub(STAMP_BYTES).max(start);
            window.drain(..keep);
        }
    }
}

const fn put(bytes: &mut [u8; STAMP_BYTES], at: usize, text: &[u8]) -> usize {
    let mut index = 0;
    while index < text.len() {
        bytes[at + index] = text[index];
        index += 1;
    }
    at + index
}

const fn put_number(bytes: &mut [u8; STAMP_BYTES], at: usize, number: u64) {
    let mut digits = 1;
    let mut rest = number / 10;
    while rest > 0 {
        digits += 1;
        rest /= 10;
    }
    let mut rest = number;
    while digits > 0 {
        digits -= 1;
        // The byte of one decimal digit.
        #[allow(clippy::cast_possible_truncation)]
        let digit = (rest % 10) as u8;
        bytes[at + digits] = b'0' + digit;
        rest /= 10;
    }
}

fn parse(facts: &[u8]) -> Option<BuildFacts> {
    let mut fields = facts.split(|byte| *byte == 0);
    let mut field = || {
        let text = std::str::from_utf8(fields.next()?).ok()?;
        let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic());
        is_plain.then(|| text.to_owned())
    };
    let facts = BuildFacts {
        version: field()?,
        sha: field()?,
        state_format: field()?.parse().ok()?,
    };
    (!facts.version.is_empty()).then_some(facts)
}

#[cfg(test)]
mod tests {
    use super::*;

    static STAMP: Stamp = Stamp::new("1.2.3+test", "0123456789ab", 1042);

    #[test]
    fn a_stamp_is_found_wherever_it_is() {
        let facts = STAMP.facts().unwrap();
        assert_eq!(facts.version, "1.2.3+test");
        assert_eq!(
            (facts.sha.as_str(), facts.state_format),
            ("0123456789ab", 1042)
        );
        for before in [
            0,
            1,
            (1 << 20) - 300,
            (1 << 20) - 100,
            (1 << 20) - 5,
            1 << 20,
            3 << 20,
        ] {
            let mut binary = vec![0x7f; before];
            binary.extend_from_slice(&STAMP.0);
            assert_eq!(
                Stamp::find(&binary[..]).unwrap(),
                Some(facts.clone()),
                "{before}"
            );
            binary.resize(before + (2 << 20), 1);
            assert_eq!(
                Stamp::find(&binary[..]).unwrap(),
                Some(facts.clone()),
                "{before}"
            );
        }
    }

    #[test]
    fn without_a_whole_stamp_there_is_none() {
        for length in [0, 5, MARK_BYTES, MARK_BYTES + 10] {
            assert_eq!(Stamp::find(&STAMP.0[..length]).unwrap(), None, "{length}");
        }
        assert_eq!(Stamp::find(&vec![0; 5 << 20][..]).unwrap(), None);
    }

    /// Otherwise a binary without a stamp would seem to have one.
    #[test]
    fn the_search_does_not_find_its_own_needle() {
        let own = std::fs::File::open("/proc/self/exe").unwrap();
        // The stamps of the tests of this crate.
        let versions = ["0.0.7", "1.2.3+test", "2.0.0", "9.8.7"];
        let version = Stamp::find(own).unwrap().map(|facts| facts.version);
        assert!(
            version.as_deref().is_some_and(|it| versions.contains(&it)),
            "{version:?}"
        );
    }
}
