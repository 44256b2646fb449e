//! What cells are called: labels joined by `/`, a nested cell below its parent.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const LABEL_BYTES: usize = 63;
/// The kernel bounds nesting by memory only; people never need as much as this.
const MOST_LABELS: usize = 16;
/// With a digest and an executable's name behind it, still a file's name.
const KEY_BYTES: usize = 64;

/// The name of a cell, known to be one. It is safe as a relative path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCellName {
    #[error(
        "{shown:?} is not the name of a cell: labels joined by `/`, each of 1 to 63 letters, digits \
         and `-`, not beginning or ending with `-`"
    )]
    Label { shown: String },
    #[error("cells are nested {MOST_LABELS} levels deep at most")]
    TooDeep,
}

impl CellName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The innermost label, which is also the host name inside.
    pub fn label(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.to_owned()))
    }

    /// Whether this cell is nested in `other`, at any depth.
    pub fn is_inside(&self, other: &Self) -> bool {
        self.0
            .strip_prefix(&other.0)
            .is_some_and(|rest| rest.starts_with('/'))
    }

    /// What the cell is called on disk, as one short part of a path: no label has a dot, so no
    /// two cells share it, and what is too long ends in a digest of the whole.
    pub fn key(&self) -> String {
        let flat = self.0.replace('/', ".");
        if flat.len() <= KEY_BYTES {
            return flat;
        }
        let (head, _) = flat.split_at(KEY_BYTES);
        format!("{head}..{:016x}", digest(flat.as_bytes()))
    }
}

/// FNV-1a: short, the same in every version, and nobody gains by a collision.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The name of an executable in its cell, known to be one. It is safe as a part of a path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecutableName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{shown:?} is not the name of an executable: 1 to 63 letters, digits, `.`, `_` and `-`, \
     beginning with a letter or digit"
)]
pub struct BadExecutableName {
    shown: String,
}

impl ExecutableName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What it is called on disk among those of all cells: no key has `_` in it.
    pub fn key(&self, cell: &CellName) -> String {
        format!("{}_{}", cell.key(), self.0)
    }
}

impl FromStr for ExecutableName {
    type Err = BadExecutableName;

    fn from_str(text: &str) -> Result<Self, BadExecutableName> {
        let may = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let begins = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric());
        if begins && text.len() <= LABEL_BYTES && text.bytes().all(may) {
            Ok(Self(text.to_owned()))
        } else {
            Err(BadExecutableName { shown: shown(text) })
        }
    }
}

impl TryFrom<String> for ExecutableName {
    type Error = BadExecutableName;

    fn try_from(text: String) -> Result<Self, BadExecutableName> {
        text.parse()
    }
}

impl From<ExecutableName> for String {
    fn from(name: ExecutableName) -> Self {
        name.0
    }
}

impl fmt::Display for ExecutableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CellName {
    type Error = BadCellName;

    fn try_from(text: String) -> Result<Self, BadCellName> {
        text.parse()
    }
}

impl From<CellName> for String {
    fn from(name: CellName) -> Self {
        name.0
    }
}

impl FromStr for CellName {
    type Err = BadCellName;

    fn from_str(text: &str) -> Result<Self, BadCellName> {
        if !text.split('/').all(is_label) {
            return Err(bad(text));
        }
        if text.split('/').count() > MOST_LABELS {
            return Err(BadCellName::TooDeep);
        }
        Ok(Self(text.to_owned()))
    }
}

fn is_label(label: &str) -> bool {
    (1..=LABEL_BYTES).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn bad(text: &str) -> BadCellName {
    BadCellName::Label { shown: shown(text) }
}

/// A huge name is not repeated in an error.
fn shown(text: &str) -> String {
    const SHOWN_CHARS: usize = 80;
    text.chars().take(SHOWN_CHARS).collect()
}

impl fmt::Display for CellName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(text: &str) -> CellName {
        text.parse().unwrap()
    }

    #[test]
    fn names_are_labels_joined_by_slashes() {
        for good in ["a", "A-1", "ae-1/sleeper", "a/b/c", &"x".repeat(63)] {
            assert_eq!(name(good).to_string(), good);
        }
        let deep = vec!["a"; 16].join("/");
        assert!(deep.parse::<CellName>().is_ok());
        assert_eq!(
            format!("{deep}/a").parse::<CellName>(),
            Err(BadCellName::TooDeep)
        );
    }

    #[test]
    fn a_bad_label_is_never_repaired() {
        let long = "x".repeat(64);
        for bad in [
            "", "/", "a/", "/a", "a//b", "-a", "a-", "a/-b", ".", "..", "a/../b", "a.b", "a b",
            "a_b", "é", "a\0", "a\n", &long,
        ] {
            assert!(bad.parse::<CellName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_huge_name_is_not_repeated_in_the_error() {
        let error = "x".repeat(1 << 20).parse::<CellName>().unwrap_err();
        assert!(error.to_string().len() < 300);
    }

    #[test]
    fn nesting_is_by_whole_labels() {
        assert_eq!(name("a/b").parent(), Some(name("a")));
        assert_eq!(name("a").parent(), None);
        assert_eq!(name("a/b").label(), "b");
        assert!(name("a/b/c").is_inside(&name("a")));
        assert!(!name("ab").is_inside(&name("a")));
        assert!(!name("a").is_inside(&name("a")));
    }

    #[test]
    fn executables_are_called_by_plain_words() {
        for good in ["a", "ps-aux", "sleep_5", "web.1", "7"] {
            assert_eq!(good.parse::<ExecutableName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        for bad in [
            "", ".", "..", "-a", "_a", "a/b", "a b", "a\n", "\0", "é", &long,
        ] {
            assert!(bad.parse::<ExecutableName>().is_err(), "{bad:?}");
        }
    }

    proptest! {
        #[test]
        fn every_cell_has_a_short_key_of_its_own(
            one in "[ab](/[ab]{1,20}){0,9}",
            other in "[ab](/[ab]{1,20}){0,9}",
        ) {
            let (one, other) = (name(&one), name(&other));
            prop_assert_eq!(one == other, one.key() == other.key());
            prop_assert!(one.key().len() <= 82);
            prop_assert!(!one.key().contains(['/', '_']));
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,100}") {
            let _ = text.parse::<CellName>();
            let _ = text.parse::<ExecutableName>();
        }
    }
}
