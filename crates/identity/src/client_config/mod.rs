//! The client configuration: named contexts, each with the endpoints of some nodes and a
//! certificate for them. The format is that of existing node clients, so that one file serves both;
//! their other keys are preserved.
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

use crate::secret_file::{SecretFileError, read_with_mode};

/// All contexts of a client and the one in use.
#[derive(Clone, PartialEq, Default)]
pub struct ClientConfig {
    /// The context used when none is named; empty when none has been chosen.
    pub context: String,
    /// The contexts by name.
    pub contexts: BTreeMap<String, Context>,
    /// Unknown keys at the top level, preserved.
    pub extra: BTreeMap<String, serde_json::Value>,
}

impl ClientConfig {
    /// Reads the file.
    pub fn load(path: &Path) -> Result<Self, ClientConfigError> {
        match Self::load_shared(path)? {
            (config, None) => Ok(config),
            (_, Some(mode)) => Err(SecretFileError::OpenToOthers {
                path: path.to_owned(),
                mode,
            }
            .into()),
        }
    }

    /// Reads the file whatever its mode. Returns the mode too if others can read a private key.
    pub fn load_shared(path: &Path) -> Result<(Self, Option<u32>), ClientConfigError> {
        let (bytes, mode) = read_with_mode(path)?;
        // The remedy for a file of another kind is not another mode.
        let config = file::parse(&bytes).map_err(|fault| fault.in_file(path))?;
        let has_key = config
            .contexts
            .values()
            .any(|context| context.key.is_some());
        Ok((config, (has_key && mode & 0o077 != 0).then_some(mode)))
    }

    /// Returns the text of the file, private keys included.
    pub fn to_yaml(&self) -> Result<String, ClientConfigError> {
        file::to_yaml(self)
    }

    /// Replaces the file atomically, with mode 0600. A symbolic link is followed.
    pub fn save(&self, path: &Path) -> Result<(), ClientConfigError> {
        file::save(self, path)
    }

    /// Returns the context of this name, or the current one.
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

    /// Makes a context the current one.
    pub fn use_context(&mut self, name: &str) -> Result<(), ClientConfigError> {
        if !self.contexts.contains_key(name) {
            return Err(self.unknown(name));
        }
        self.context = name.to_owned();
        Ok(())
    }

    /// Removes a context. If it was the current one, none is current afterwards.
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
        // Unknown values may be secrets, so only their keys are shown.
        f.debug_struct("ClientConfig")
            .field("context", &self.context)
            .field("contexts", &self.contexts)
            .field("extra", &self.extra.keys())
            .finish()
    }
}
