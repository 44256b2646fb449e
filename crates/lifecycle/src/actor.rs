//! The id of the call that asked for a sequence.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A random id (UUID version 4), which answers and events carry, so that a client finds the events
/// of its own call.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ActorId(String);

/// Text that is not a UUID.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not an actor id; an actor id is a UUID such as 4fe2b2a5-0d7b-4e07-9fd0-3c3e6f0c3a3b")]
pub struct BadActorId;

impl ActorId {
    /// Creates an id that no other call has.
    pub fn random() -> Self {
        Self(Uuid::new_v4().to_string())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ActorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for ActorId {
    type Err = BadActorId;

    fn from_str(text: &str) -> Result<Self, BadActorId> {
        // Only the canonical form: other spellings of the same id would not compare equal.
        match Uuid::try_parse(text) {
            Ok(id) if id.to_string() == text => Ok(Self(text.to_owned())),
            _ => Err(BadActorId),
        }
    }
}

impl TryFrom<String> for ActorId {
    type Error = BadActorId;

    fn try_from(text: String) -> Result<Self, BadActorId> {
        text.parse()
    }
}

impl From<ActorId> for String {
    fn from(actor: ActorId) -> Self {
        actor.0
    }
}
