//! Names of services.

use std::fmt;
use std::str::FromStr;

use mainstay_cells::CellName;
use serde::{Deserialize, Serialize};

/// The daemon's own service.
const DAEMON: &str = "mainstay";

/// The cells of all services without namespaces of their own: several, so that one shim does not
/// start them all one after the other. No service has one of these names. A service keeps its cell
/// as long as this list stays as it is.
pub const SHARED_CELLS: [&str; 4] = ["mainstay-0", "mainstay-1", "mainstay-2", "mainstay-3"];

/// The name of a service: one label, which is also the name of its executable and, if it has one,
/// of its cell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadServiceName {
    #[error(
        "invalid service name {shown:?}: use 1 to 63 letters, digits and `-`, not starting or \
         ending with `-`"
    )]
    Label { shown: String },
    #[error("the service name {shown:?} is taken: it is the daemon's own")]
    Daemon { shown: String },
}

impl ServiceName {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ServiceName {
    type Err = BadServiceName;

    fn from_str(text: &str) -> Result<Self, BadServiceName> {
        const SHOWN_CHARS: usize = 80;
        // A cell's name may be nested, a service's may not.
        if text.contains('/') || text.parse::<CellName>().is_err() {
            return Err(BadServiceName::Label {
                shown: text.chars().take(SHOWN_CHARS).collect(),
            });
        }
        if text == DAEMON || SHARED_CELLS.contains(&text) {
            return Err(BadServiceName::Daemon {
                shown: text.to_owned(),
            });
        }
        Ok(Self(text.to_owned()))
    }
}

impl TryFrom<String> for ServiceName {
    type Error = BadServiceName;

    fn try_from(text: String) -> Result<Self, BadServiceName> {
        text.parse()
    }
}

impl From<ServiceName> for String {
    fn from(name: ServiceName) -> Self {
        name.0
    }
}

impl fmt::Display for ServiceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_label() {
        for good in ["a", "web-1", "0"] {
            assert_eq!(good.parse::<ServiceName>().unwrap().as_str(), good);
        }
        let long = "x".repeat(64);
        for bad in [
            "",
            "-a",
            "a-",
            "a/b",
            "a b",
            "a.b",
            "ä",
            "mainstay",
            "mainstay-0",
            long.as_str(),
        ] {
            assert!(bad.parse::<ServiceName>().is_err(), "{bad:?}");
        }
    }
}
