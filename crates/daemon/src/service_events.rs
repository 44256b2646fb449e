//! Events about services: state changes of the daemon itself and of what its engines run.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use mainstay_api::machine::{ServiceHealth, ServiceStateEvent, service_state_event::Action};
use mainstay_error_chain::chain;
use mainstay_journal::{EventStore, Timestamp};
use prost::{Message, Name};
use tracing::error;

/// The id of the daemon's own service.
pub const DAEMON_SERVICE: &str = "mainstay";
/// The changes of the daemon that are kept.
const MAX_HISTORY: usize = 64;

/// Publishes to the event store.
#[derive(Debug, Clone)]
pub struct ServiceEvents {
    store: EventStore,
    daemon: Arc<Mutex<VecDeque<DaemonChange>>>,
}

/// A change in the life of the daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaemonChange {
    pub at: Timestamp,
    pub state: &'static str,
    pub message: String,
}

impl ServiceEvents {
    pub fn new(store: EventStore) -> Self {
        Self {
            store,
            daemon: Arc::default(),
        }
    }

    /// The last changes of the daemon since its start, oldest first.
    pub fn daemon_history(&self) -> Vec<DaemonChange> {
        let history = self.daemon.lock().unwrap_or_else(PoisonError::into_inner);
        history.iter().cloned().collect()
    }

    /// Publishes a state change of the daemon. Blocks for one small write.
    pub fn daemon(&self, action: Action, message: &str) {
        let healthy = matches!(action, Action::Running);
        {
            let mut history = self.daemon.lock().unwrap_or_else(PoisonError::into_inner);
            if history.len() >= MAX_HISTORY {
                history.pop_front();
            }
            history.push_back(DaemonChange {
                at: Timestamp::now(),
                state: match action {
                    Action::Starting => "Starting",
                    Action::Stopping => "Stopping",
                    Action::Finished => "Finished",
                    _ => "Running",
                },
                message: message.to_owned(),
            });
        }
        self.publish(&ServiceStateEvent {
            service: DAEMON_SERVICE.to_owned(),
            action: action.into(),
            message: message.to_owned(),
            health: Some(ServiceHealth {
                unknown: false,
                healthy,
                ..ServiceHealth::default()
            }),
        });
    }

    /// Publishes a state change of any service. Blocks for one small write.
    pub fn publish(&self, event: &ServiceStateEvent) {
        let kind = ServiceStateEvent::full_name();
        if let Err(why) = self.store.publish(&kind, &event.encode_to_vec()) {
            // A full disk must not stop the daemon from doing what it still can.
            error!(
                service = event.service,
                error = chain(&why),
                "event dropped"
            );
        }
    }
}
