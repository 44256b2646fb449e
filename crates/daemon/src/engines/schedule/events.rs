//! Publishes changes of schedules as events of services called `schedule/<name>`.

use mainstay_api::machine::service_state_event::Action;
use mainstay_api::machine::{ServiceHealth, ServiceStateEvent};
use mainstay_schedule::Change;

use crate::service_events::ServiceEvents;

pub(super) fn publish(events: &ServiceEvents, change: Change) {
    let (name, action, message) = match change {
        Change::Started { name, pid: 0 } => (name, Action::Running, "started".to_owned()),
        Change::Started { name, pid } => (name, Action::Running, format!("started with pid {pid}")),
        Change::Ended { name, ended } => {
            let action = match ended.succeeded {
                true => Action::Finished,
                false => Action::Failed,
            };
            (name, action, ended.result)
        }
        Change::Skipped { name } => {
            let message = "run skipped: the one before goes on";
            (name, Action::Skipped, message.to_owned())
        }
        Change::Missed { name, made_up } => {
            let message = match made_up {
                true => "run missed; made up for now",
                false => "run missed",
            };
            (name, Action::Skipped, message.to_owned())
        }
        Change::Enabled { name } => (name, Action::Initialized, "enabled".to_owned()),
        Change::Disabled { name } => (name, Action::Finished, "disabled".to_owned()),
        Change::Destroyed { name } => (name, Action::Finished, "destroyed".to_owned()),
    };
    events.publish(&ServiceStateEvent {
        service: format!("schedule/{name}"),
        action: action.into(),
        message,
        health: Some(ServiceHealth {
            unknown: true,
            ..ServiceHealth::default()
        }),
    });
}
