//! Requests: start, stop and restart of one service, of all of them, and new definitions.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use mainstay_journal::Timestamp;
use tokio::time::timeout;

use super::{Inner, State, Supervisor};
use crate::core;
use crate::{Definition, Operation, ServiceName};

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ServiceError {
    #[error("service {shown:?} not defined")]
    NotDefined { shown: String },
    #[error("service {service:?} doesn't support {} operation via API", operation.as_str())]
    NotSupported {
        service: String,
        operation: Operation,
    },
    #[error("cannot stop service {service:?}: {reason}")]
    NotStopped { service: String, reason: String },
    #[error("services are stopped for a sequence; wait for its end")]
    Held,
}

/// A service that was not down in time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotDown {
    pub service: ServiceName,
    pub reason: String,
}

impl Supervisor {
    /// Replaces the definitions, which must have passed [`crate::graph::check`].
    pub fn define(&self, definitions: BTreeMap<ServiceName, Arc<Definition>>) {
        let held = self.0.state().held;
        self.0.act(|core, now| {
            let mut effects = core.define(definitions, BTreeMap::new(), now);
            if held {
                effects.extend(core.stop_all());
            }
            effects
        });
    }

    /// Starts a service and what it requires; it need not be up yet when this returns.
    pub async fn start(&self, service: &str) -> Result<(), ServiceError> {
        let service = self.permitted(service, Operation::Start)?;
        self.0.note_stopped(service.clone(), false).await;
        self.0.act(|core, _| core.start(&service));
        Ok(())
    }

    /// Stops a service, and what requires it first; returns when it is down.
    pub async fn stop(&self, service: &str) -> Result<(), ServiceError> {
        let service = self.permitted(service, Operation::Stop)?;
        self.0.note_stopped(service.clone(), true).await;
        self.0.act(|core, _| core.stop(&service));
        self.0.stop_again(&service);
        self.0.until_down(&service, None).await
    }

    /// Stops a service and starts it again; returns when the earlier process is down.
    pub async fn restart(&self, service: &str) -> Result<(), ServiceError> {
        let service = self.permitted(service, Operation::Restart)?;
        self.0.note_stopped(service.clone(), false).await;
        let run = self.0.state().core.status(&service).map(|seen| seen.run);
        self.0.act(|core, _| core.restart(&service));
        self.0.stop_again(&service);
        self.0.until_down(&service, run).await
    }

    /// Stops all services in reverse order, and starts none until [`Supervisor::start_all`]. Returns
    /// those that are not down when the time is over.
    pub async fn stop_all(&self, limit: Duration) -> Vec<NotDown> {
        self.0.state().held = true;
        self.0.act(|core, _| core.stop_all());
        let down = |state: &mut State| {
            (!state.core.list().any(|(_, seen)| seen.has_process)).then_some(())
        };
        let _ = timeout(limit, self.0.wait_for(down)).await;
        let not_down = self.0.not_down();
        let inner = Arc::clone(&self.0);
        let noted = tokio::task::spawn_blocking(move || {
            let mut stopped = inner.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            stopped.start_afresh(Timestamp::now().as_nanos())
        });
        if let Ok(Err(error)) = noted.await {
            tracing::warn!(%error, "cannot note that all services were stopped");
        }
        not_down
    }

    /// Starts all enabled services, as when the node starts.
    pub fn start_all(&self) {
        self.0.state().held = false;
        self.0.act(|core, _| core.start_enabled());
    }

    /// Whether [`Supervisor::stop_all`] holds all services down.
    pub fn is_held(&self) -> bool {
        self.0.state().held
    }

    /// Waits until nothing changes any more by itself, such as after a start.
    pub async fn until_settled(&self) {
        let settled = |state: &mut State| {
            state
                .core
                .list()
                .all(|(_, seen)| seen.settled)
                .then_some(())
        };
        self.0.wait_for(settled).await;
    }

    fn permitted(&self, name: &str, operation: Operation) -> Result<ServiceName, ServiceError> {
        const SHOWN_CHARS: usize = 80;
        let not_defined = || ServiceError::NotDefined {
            shown: name.chars().take(SHOWN_CHARS).collect(),
        };
        let service: ServiceName = name.parse().map_err(|_| not_defined())?;
        let state = self.0.state();
        let definition = state.core.definition(&service).ok_or_else(not_defined)?;
        if !definition.operations.contains(&operation) {
            return Err(ServiceError::NotSupported {
                service: service.to_string(),
                operation,
            });
        }
        if state.held && operation != Operation::Stop {
            return Err(ServiceError::Held);
        }
        Ok(service)
    }
}

impl Inner {
    /// Tries again to stop a process that could not be stopped.
    fn stop_again(self: &Arc<Self>, service: &ServiceName) {
        let mut state = self.state();
        let failed = state
            .slots
            .get(service)
            .is_some_and(|slot| slot.stop_failure.is_some());
        let seen = state.core.status(service);
        if let (true, Some(seen)) = (failed, seen) {
            self.begin_stop(&mut state, service.clone(), seen.run);
        }
    }

    /// Waits until a service has no process, or another than that of a run.
    async fn until_down(
        &self,
        service: &ServiceName,
        run: Option<u64>,
    ) -> Result<(), ServiceError> {
        let down = |state: &mut State| {
            let Some(seen) = state.core.status(service) else {
                // Removed meanwhile.
                return Some(Ok(()));
            };
            if !seen.has_process || run.is_some_and(|run| run != seen.run) {
                return Some(Ok(()));
            }
            let going = matches!(seen.state, core::State::Stopping);
            if run.is_none() && seen.wanted && !going {
                // Started again by another caller.
                return Some(Ok(()));
            }
            let failure = state.slots.get(service)?.stop_failure.clone()?;
            Some(Err(ServiceError::NotStopped {
                service: service.to_string(),
                reason: failure,
            }))
        };
        self.wait_for(down).await
    }

    fn not_down(&self) -> Vec<NotDown> {
        let state = self.state();
        let running = state.core.list().filter(|(_, seen)| seen.has_process);
        let described = running.map(|(service, seen)| {
            let failure = state
                .slots
                .get(service)
                .and_then(|slot| slot.stop_failure.clone());
            NotDown {
                service: service.clone(),
                reason: failure.unwrap_or(seen.message),
            }
        });
        described.collect()
    }

    /// Notes on disk whether a service is stopped by request. Without it the next daemon starts it.
    pub(super) async fn note_stopped(self: &Arc<Self>, service: ServiceName, stopped: bool) {
        let inner = Arc::clone(self);
        let name = service.clone();
        let noted = tokio::task::spawn_blocking(move || {
            let mut services = inner.stopped.lock().unwrap_or_else(PoisonError::into_inner);
            services.set(&name, stopped)
        });
        if let Ok(Err(error)) = noted.await {
            tracing::warn!(%service, %error, "cannot note whether a service is stopped");
        }
    }
}
