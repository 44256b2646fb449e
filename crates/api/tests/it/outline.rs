//! A contract as a flat list of items, and the differences between two such lists.
//!
//! Both the compiled descriptors and the written expectations are reduced to this form, so that
//! comparing them is one walk in both directions and every difference names its item.

use std::collections::BTreeMap;
use std::fmt;

/// One thing a client can rely on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Item {
    Package(String),
    Message(String),
    /// Known by its number, which is what stands on the wire.
    Field {
        message: String,
        number: i32,
    },
    Enum(String),
    Value {
        of: String,
        name: String,
    },
    Service(String),
    Rpc {
        service: String,
        name: String,
    },
}

/// Every item with what is said of it: `name type` for a field, the number of an enum value,
/// `request -> reply` for an rpc, and nothing for those that only hold others.
pub(crate) type Outline = BTreeMap<Item, String>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Difference {
    Missing {
        item: Item,
        expected: String,
    },
    Unlisted {
        item: Item,
        found: String,
    },
    Changed {
        item: Item,
        expected: String,
        found: String,
    },
}

/// All differences between what is expected and what is there, ordered by item.
pub(crate) fn differences(expected: &Outline, found: &Outline) -> Vec<Difference> {
    let lacking = expected
        .iter()
        .filter_map(|(item, expected)| match found.get(item) {
            None => Some(Difference::Missing {
                item: item.clone(),
                expected: expected.clone(),
            }),
            Some(found) if found != expected => Some(Difference::Changed {
                item: item.clone(),
                expected: expected.clone(),
                found: found.clone(),
            }),
            Some(_) => None,
        });
    let unlisted = found
        .iter()
        .filter(|(item, _)| !expected.contains_key(item))
        .map(|(item, found)| Difference::Unlisted {
            item: item.clone(),
            found: found.clone(),
        });
    let mut differences: Vec<_> = lacking.chain(unlisted).collect();
    differences.sort_by(|a, b| a.item().cmp(b.item()));
    differences
}

impl Difference {
    fn item(&self) -> &Item {
        match self {
            Self::Missing { item, .. }
            | Self::Unlisted { item, .. }
            | Self::Changed { item, .. } => item,
        }
    }
}

impl fmt::Display for Item {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Package(name) => write!(f, "package {name}"),
            Self::Message(name) => write!(f, "message {name}"),
            Self::Field { message, number } => write!(f, "field {number} of {message}"),
            Self::Enum(name) => write!(f, "enum {name}"),
            Self::Value { of, name } => write!(f, "value {name} of {of}"),
            Self::Service(name) => write!(f, "service {name}"),
            Self::Rpc { service, name } => write!(f, "rpc {name} of {service}"),
        }
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { item, expected } => write!(f, "{item} is missing: {expected:?}"),
            Self::Unlisted { item, found } => {
                write!(
                    f,
                    "{item} is not listed in contract.json or additions.json: {found:?}"
                )
            }
            Self::Changed {
                item,
                expected,
                found,
            } => {
                write!(f, "{item} should be {expected:?} and is {found:?}")
            }
        }
    }
}
