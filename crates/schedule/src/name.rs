//! Names of schedules.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The name of a schedule: one label, which is also the name of its record.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ScheduleName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid schedule name {shown:?}: use 1 to 63 letters, digits and `-`, not starting or ending \
     with `-`"
)]
pub struct BadScheduleName {
    shown: String,
}

impl FromStr for ScheduleName {
    type Err = BadScheduleName;

    fn from_str(text: &str) -> Result<Self, BadScheduleName> {
        let is_label = (1..=63).contains(&text.len())
            && !text.starts_with('-')
            && !text.ends_with('-')
            && (text.bytes()).all(|b| b.is_ascii_alphanumeric() || b == b'-');
        if !is_label {
            return Err(BadScheduleName {
                shown: text.chars().take(80).collect(),
            });
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ScheduleName {
    type Error = BadScheduleName;

    fn try_from(text: String) -> Result<Self, BadScheduleName> {
        text.parse()
    }
}

impl From<ScheduleName> for String {
    fn from(name: ScheduleName) -> Self {
        name.0
    }
}

impl fmt::Display for ScheduleName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
