//! What cells are called: labels joined by `/`, a nested cell below its parent.

use std::fmt;
use std::str::FromStr;

const LABEL_BYTES: usize = 63;
/// The kernel bounds nesting by memory only; people never need as much as this.
const MOST_LABELS: usize = 16;

/// The name of a cell, known to be one. It is safe as a relative path.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

    /// The name as one part of a path: no label has a dot, so no two cells share it.
    pub fn flat(&self) -> String {
        self.0.replace('/', ".")
    }

    /// The cell that [`CellName::flat`] was made of.
    pub fn from_flat(flat: &str) -> Result<Self, BadCellName> {
        if flat.contains('/') {
            return Err(bad(flat));
        }
        flat.replace('.', "/").parse()
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
    const SHOWN_CHARS: usize = 80;
    BadCellName::Label {
        shown: text.chars().take(SHOWN_CHARS).collect(),
    }
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

    proptest! {
        #[test]
        fn every_name_has_a_flat_form_of_its_own(text in "[a-zA-Z0-9-]{1,5}(/[a-zA-Z0-9-]{1,5}){0,4}") {
            if let Ok(name) = text.parse::<CellName>() {
                let flat = name.flat();
                prop_assert!(!flat.contains('/'));
                prop_assert_eq!(CellName::from_flat(&flat), Ok(name));
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,100}") {
            let _ = text.parse::<CellName>();
            let _ = CellName::from_flat(&text);
        }
    }
}
