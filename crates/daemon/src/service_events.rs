//! Events about services: state changes of the daemon itself and of what its engines run.

use mainstay_api::machine::{ServiceHealth, ServiceStateEvent, service_state_event::Action};
use mainstay_error_chain::chain;
use mainstay_journal::EventStore;
use prost::{Message, Name};
use tracing::error;

/// The id of the daemon's own service.
const DAEMON_SERVICE: &str = "mainstay";

/// Publishes to the event store.
#[derive(Debug, Clone)]
pub struct ServiceEvents {
    store: EventStore,
}

impl ServiceEvents {
    pub fn new(store: EventStore) -> Self {
        Self { store }
    }

    /// Publishes a state change of the daemon. Blocks for one small write.
    pub fn daemon(&self, action: Action, message: &str) {
        let healthy = matches!(action, Action::Running);
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
