//! Restarts that go on: one at a time for a container.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::container::Container;
use crate::error::ContainerError;

type Key = (String, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct Restarts(Arc<Mutex<HashSet<Key>>>);

/// Held while a container is restarted.
#[derive(Debug)]
pub(crate) struct Turn {
    restarts: Restarts,
    key: Key,
}

impl Restarts {
    pub(crate) fn begin(&self, container: &Container) -> Result<Turn, ContainerError> {
        let key = (container.namespace.clone(), container.internal_id.clone());
        let mut going_on = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !going_on.insert(key.clone()) {
            return Err(ContainerError::Restarting {
                id: container.id.clone(),
            });
        }
        Ok(Turn {
            restarts: self.clone(),
            key,
        })
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut going_on = self
            .restarts
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        going_on.remove(&self.key);
    }
}
