//! Restarts in progress: one at a time per container.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::container::Container;
use crate::error::ContainerError;

type Key = (String, String);

#[derive(Clone, Debug, Default)]
pub(crate) struct Restarts(Arc<Mutex<HashSet<Key>>>);

/// Guard held while a container is restarted.
#[derive(Debug)]
pub(crate) struct RestartGuard {
    restarts: Restarts,
    key: Key,
}

impl Restarts {
    pub(crate) fn begin(&self, container: &Container) -> Result<RestartGuard, ContainerError> {
        let key = (container.namespace.clone(), container.internal_id.clone());
        let mut in_progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !in_progress.insert(key.clone()) {
            return Err(ContainerError::Restarting {
                id: container.id.clone(),
            });
        }
        Ok(RestartGuard {
            restarts: self.clone(),
            key,
        })
    }
}

impl Drop for RestartGuard {
    fn drop(&mut self) {
        let mut in_progress = self
            .restarts
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        in_progress.remove(&self.key);
    }
}
