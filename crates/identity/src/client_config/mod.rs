//! The file a client keeps its credentials in: named contexts, each with the endpoints of some
//! nodes and a certificate for them. The shape is the one existing node clients use, so that one
//! file serves them and us; what they keep in it beyond ours is left as it is.
//!
//! The file holds private keys: it is written 0600 and not read when others can read it, and no
//! error shows any of its contents.

mod context;
mod error;
mod file;
mod merge;

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

pub use context::Context;
pub use error::ClientConfigError;
pub use merge::Renamed;

use crate::secret_file::read_secret;

/// All contexts of a client and the one in use.
#[derive(Clone, PartialEq, Default)]
pub struct ClientConfig {
    /// The context used when none is named; empty when none has been chosen.
    pub context: String,
    /// The contexts by name.
    pub contexts: BTreeMap<String, Context>,
    /// Keys at the top of the file that are not ours, kept for whoever put them there.
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl ClientConfig {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, ClientConfigError> {
        let bytes = read_secret(path)?;
        file::parse(&bytes).map_err(|fault| fault.in_file(path))
    }

    /// The text of the file, for whoever wants it elsewhere. It holds the keys.
    pub fn to_yaml(&self) -> Result<String, ClientConfigError> {
        file::to_yaml(self)
    }

    /// Writes the file as a whole, readable by its owner alone. A link is followed, so that a
    /// file kept elsewhere stays there.
    pub fn save(&self, path: &Path) -> Result<(), ClientConfigError> {
        file::save(self, path)
    }

    /// The context of this name, or the one in use.
    pub fn get(&self, name: Option<&str>) -> Result<(&str, &Context), ClientConfigError> {
        let wanted = name.unwrap_or(&self.context);
        match self.contexts.get_key_value(wanted) {
            Some((name, context)) => Ok((name, context)),
            None if name.is_none() && wanted.is_empty() => Err(ClientConfigError::NoneChosen {
                known: self.names(),
            }),
            None => Err(self.unknown(wanted)),
        }
    }

    /// Makes a context the one in use.
    pub fn use_context(&mut self, name: &str) -> Result<(), ClientConfigError> {
        if !self.contexts.contains_key(name) {
            return Err(self.unknown(name));
        }
        self.context = name.to_owned();
        Ok(())
    }

    /// Takes a context out. If it was the one in use, none is afterwards.
    pub fn remove(&mut self, name: &str) -> Result<Context, ClientConfigError> {
        let Some(removed) = self.contexts.remove(name) else {
            return Err(self.unknown(name));
        };
        if self.context == name {
            self.context.clear();
        }
        Ok(removed)
    }

    fn unknown(&self, name: &str) -> ClientConfigError {
        ClientConfigError::UnknownContext {
            name: name.to_owned(),
            known: self.names(),
        }
    }

    fn names(&self) -> Vec<String> {
        self.contexts.keys().cloned().collect()
    }
}

impl fmt::Debug for ClientConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // What others keep here may be a secret, so only its keys show.
        f.debug_struct("ClientConfig")
            .field("context", &self.context)
            .field("contexts", &self.contexts)
            .field("extra", &self.extra.keys())
            .finish()
    }
}
