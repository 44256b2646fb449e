//! What the daemon itself tells the events journal: the states of its own service.

use mainstay_api::machine::{ServiceHealth, ServiceStateEvent, service_state_event::Action};
use mainstay_journal::EventStore;
use prost::{Message, Name};
use tracing::error;

/// The id of the daemon's own service.
pub const SERVICE: &str = "mainstay";

#[derive(Debug, Clone)]
pub struct DaemonEvents {
    store: EventStore,
}

impl DaemonEvents {
    pub fn new(store: EventStore) -> Self {
        Self { store }
    }

    /// Blocks for one small write.
    pub fn state(&self, action: Action, message: &str) {
        let healthy = matches!(action, Action::Running);
        let event = ServiceStateEvent {
            service: SERVICE.to_owned(),
            action: action.into(),
            message: message.to_owned(),
            health: Some(ServiceHealth {
                unknown: false,
                healthy,
                ..ServiceHealth::default()
            }),
        };
        let kind = ServiceStateEvent::full_name();
        if let Err(why) = self.store.publish(&kind, &event.encode_to_vec()) {
            // A full disk must not stop the daemon from doing what it can do.
            error!(error = %why, "an event could not be kept");
        }
    }
}
