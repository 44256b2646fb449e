//! Names of cells and executables.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

const MAX_LABEL_BYTES: usize = 63;
/// The kernel bounds nesting by memory only.
const MAX_LABELS: usize = 16;
/// Leaves room for a digest and an executable's name within `NAME_MAX`.
const MAX_KEY_BYTES: usize = 64;

/// A valid cell name: labels joined by `/`, a nested cell below its parent. Safe as a relative path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadCellName {
    #[error(
        "invalid cell name {shown:?}: use labels joined by `/`, each of 1 to 63 letters, digits and \
         `-`, not starting or ending with `-`"
    )]
    Label { shown: String },
    #[error("cells can be nested at most {MAX_LABELS} levels deep")]
    TooDeep,
}

impl CellName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The innermost label, which is also the default host name.
    pub fn label(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or(&self.0)
    }

    /// The cell this one is nested in.
    pub fn parent(&self) -> Option<Self> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some(Self(parent.to_owned()))
    }

    /// Returns whether this cell is nested in `other`, at any depth.
    pub fn is_inside(&self, other: &Self) -> bool {
        self.0
            .strip_prefix(&other.0)
            .is_some_and(|rest| rest.starts_with('/'))
    }

    /// The file name of the cell on disk. Unique: labels contain no dot, and a long name ends in
    /// a digest of the whole.
    pub fn key(&self) -> String {
        let flat = self.0.replace('/', ".");
        if flat.len() <= MAX_KEY_BYTES {
            return flat;
        }
        let (head, _) = flat.split_at(MAX_KEY_BYTES);
        format!("{head}..{:016x}", digest(flat.as_bytes()))
    }
}

impl CellName {
    /// The name whose key this is; `None` if it is not a key, or the key of a long name.
    pub(crate) fn from_key(key: &str) -> Option<Self> {
        let name: Self = key.replace('.', "/").parse().ok()?;
        (name.key() == key).then_some(name)
    }
}

/// FNV-1a: short, stable across versions; collisions need no defence.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A valid name of an executable in its cell. Safe as a path component.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ExecutableName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid executable name {shown:?}: use 1 to 63 letters, digits, `.`, `_` and `-`, starting \
     with a letter or digit"
)]
pub struct BadExecutableName {
    shown: String,
}

impl ExecutableName {
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The file name of the executable on disk, unique among all cells: no cell key contains `_`.
    pub fn key(&self, cell: &CellName) -> String {
        format!("{}_{}", cell.key(), self.0)
    }
}

impl FromStr for ExecutableName {
    type Err = BadExecutableName;

    fn from_str(text: &str) -> Result<Self, BadExecutableName> {
        let may = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-');
        let starts = text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric());
        if starts && text.len() <= MAX_LABEL_BYTES && text.bytes().all(may) {
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
        if text.split('/').count() > MAX_LABELS {
            return Err(BadCellName::TooDeep);
        }
        Ok(Self(text.to_owned()))
    }
}

fn is_label(label: &str) -> bool {
    (1..=MAX_LABEL_BYTES).contains(&label.len())
        && label
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}

fn bad(text: &str) -> BadCellName {
    BadCellName::Label { shown: shown(text) }
}

/// Truncates a name for an error message.
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
    fn cell_names_are_labels_joined_by_slashes() {
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
    fn an_invalid_cell_name_is_refused() {
        let long = "x".repeat(64);
        for bad in [
            "", "/", "a/", "/a", "a//b", "-a", "a-", "a/-b", ".", "..", "a/../b", "a.b", "a b",
            "a_b", "é", "a\0", "a\n", &long,
        ] {
            assert!(bad.parse::<CellName>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_huge_name_is_truncated_in_the_error() {
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
    fn an_invalid_executable_name_is_refused() {
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
        fn keys_of_cells_are_short_and_unique(
            one in "[ab](/[ab]{1,20}){0,9}",
            other in "[ab](/[ab]{1,20}){0,9}",
        ) {
            let (one, other) = (name(&one), name(&other));
            prop_assert_eq!(one == other, one.key() == other.key());
            prop_assert!(one.key().len() <= 82);
            prop_assert!(!one.key().contains(['/', '_']));
            if one.as_str().len() <= MAX_KEY_BYTES {
                prop_assert_eq!(CellName::from_key(&one.key()), Some(one));
            } else {
                prop_assert_eq!(CellName::from_key(&one.key()), None);
            }
        }

        #[test]
        fn parsing_any_text_does_not_panic(text in ".{0,100}") {
            let _ = text.parse::<CellName>();
            let _ = text.parse::<ExecutableName>();
        }
    }
}
