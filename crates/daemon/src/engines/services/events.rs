//! Publishes the changes of services as events.

use mainstay_api::machine::service_state_event::Action;
use mainstay_api::machine::{ServiceHealth, ServiceStateEvent};
use mainstay_supervisor::SupervisorEvents;
use mainstay_supervisor::core::{Change, Health, State};

use crate::service_events::ServiceEvents;

#[derive(Debug)]
pub struct ServicesToEvents(ServiceEvents);

impl ServicesToEvents {
    pub fn new(events: ServiceEvents) -> Self {
        Self(events)
    }
}

impl SupervisorEvents for ServicesToEvents {
    fn publish(&self, change: &Change) {
        let service = change.service.as_str();
        let (state, message) = (change.state.as_str(), change.message.as_str());
        match change.state {
            State::Failed => tracing::error!(service, reason = message, "service failed"),
            // Back-off of a service that crashes; each attempt is an event too.
            _ => tracing::debug!(service, state, message, "service changed"),
        }
        self.0.publish(&ServiceStateEvent {
            service: service.to_owned(),
            action: action(change.state).into(),
            message: change.message.clone(),
            health: Some(ServiceHealth {
                unknown: change.health == Health::Unknown,
                healthy: change.health == Health::Healthy,
                last_message: match &change.health {
                    Health::Unhealthy { reason } => reason.clone(),
                    Health::Healthy | Health::Unknown => String::new(),
                },
                last_change: None,
            }),
        });
    }
}

fn action(state: State) -> Action {
    match state {
        State::Initialized => Action::Initialized,
        State::Waiting => Action::Waiting,
        State::Starting => Action::Starting,
        State::Running => Action::Running,
        State::Stopping => Action::Stopping,
        State::Finished => Action::Finished,
        State::Failed => Action::Failed,
    }
}
