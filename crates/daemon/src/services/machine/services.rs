//! `ServiceList`, `ServiceStart`, `ServiceStop`, `ServiceRestart`: the services of the node, the
//! daemon itself among them.

use mainstay_api::machine::{ServiceEvent, ServiceEvents, ServiceHealth, ServiceInfo, ServiceList};
use mainstay_journal::Timestamp;
use mainstay_supervisor::core::Health;
use mainstay_supervisor::{HistoryEntry, Operation, ServiceError, ServiceStatus};
use tonic::Status;

use crate::node::Node;
use crate::rpc::status;
use crate::service_events::{DAEMON_SERVICE, DaemonChange};
use crate::text::close_matches;

pub(super) fn list(node: &Node) -> ServiceList {
    let services = node.engines.services.list();
    let mut services: Vec<ServiceInfo> = services.into_iter().map(info).collect();
    let place = services.partition_point(|service| service.id.as_str() < DAEMON_SERVICE);
    services.insert(place, daemon(node));
    ServiceList {
        metadata: None,
        services,
    }
}

pub(super) async fn start(node: &Node, id: &str) -> Result<String, Status> {
    // It runs, or could not answer.
    if id != DAEMON_SERVICE {
        let started = node.engines.services.start(id).await;
        started.map_err(|error| explain(node, id, &error))?;
    }
    Ok(format!("Service \"{id}\" started"))
}

pub(super) async fn stop(node: &Node, id: &str) -> Result<String, Status> {
    refuse_daemon(id, Operation::Stop)?;
    let stopped = node.engines.services.stop(id).await;
    stopped.map_err(|error| explain(node, id, &error))?;
    Ok(format!("Service \"{id}\" stopped"))
}

pub(super) async fn restart(node: &Node, id: &str) -> Result<String, Status> {
    refuse_daemon(id, Operation::Restart)?;
    let restarted = node.engines.services.restart(id).await;
    restarted.map_err(|error| explain(node, id, &error))?;
    Ok(format!("Service \"{id}\" restarted"))
}

fn refuse_daemon(id: &str, operation: Operation) -> Result<(), Status> {
    if id != DAEMON_SERVICE {
        return Ok(());
    }
    Err(status::of_services(&ServiceError::NotSupported {
        service: id.to_owned(),
        operation,
    }))
}

/// Adds the services that may be meant.
fn explain(node: &Node, id: &str, error: &ServiceError) -> Status {
    let status = status::of_services(error);
    if !matches!(error, ServiceError::NotDefined { .. }) {
        return status;
    }
    let names = node.engines.services.names();
    let close = close_matches(id, names.iter().map(String::as_str));
    match close.as_slice() {
        [] => status,
        close => Status::new(
            status.code(),
            format!("{}; close matches: {}", status.message(), close.join(", ")),
        ),
    }
}

fn daemon(node: &Node) -> ServiceInfo {
    let history = node.engines.journal.service_events.daemon_history();
    let since = history.first().map(|change| change.at);
    let event = |change: DaemonChange| event(change.at, change.state, change.message);
    ServiceInfo {
        id: DAEMON_SERVICE.to_owned(),
        // Whatever it is about to do, it answers.
        state: "Running".to_owned(),
        events: Some(ServiceEvents {
            events: history.into_iter().map(event).collect(),
        }),
        health: Some(ServiceHealth {
            unknown: false,
            healthy: true,
            last_message: String::new(),
            last_change: since.map(timestamp),
        }),
    }
}

fn info(service: ServiceStatus) -> ServiceInfo {
    let health = ServiceHealth {
        unknown: service.status.health == Health::Unknown,
        healthy: service.status.health == Health::Healthy,
        last_message: match service.status.health {
            Health::Unhealthy { reason } => reason,
            Health::Healthy | Health::Unknown => String::new(),
        },
        last_change: service.health_changed.map(timestamp),
    };
    let history = service.history.into_iter();
    let event = |entry: HistoryEntry| event(entry.at, entry.state.as_str(), entry.message);
    ServiceInfo {
        id: service.name.to_string(),
        state: service.status.state.as_str().to_owned(),
        events: Some(ServiceEvents {
            events: history.map(event).collect(),
        }),
        health: Some(health),
    }
}

fn event(at: Timestamp, state: &str, message: String) -> ServiceEvent {
    ServiceEvent {
        msg: message,
        state: state.to_owned(),
        ts: Some(timestamp(at)),
    }
}

fn timestamp(at: Timestamp) -> prost_types::Timestamp {
    const NANOS_PER_SECOND: i64 = 1_000_000_000;
    let nanos = at.as_nanos();
    prost_types::Timestamp {
        seconds: nanos.div_euclid(NANOS_PER_SECOND),
        nanos: i32::try_from(nanos.rem_euclid(NANOS_PER_SECOND)).unwrap_or(0),
    }
}
