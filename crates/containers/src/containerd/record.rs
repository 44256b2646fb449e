//! The record containerd keeps of a container, running or not.

use std::collections::HashMap;

use mainstay_container_clients::containerd::containers as api;
use mainstay_container_clients::containerd::task::{Process, Status};

use crate::container::Container;
use crate::images::{Tags, has_tag};
use crate::names::Names;
use crate::spec::Spec;

#[derive(Debug)]
pub(super) struct Record {
    pub(super) internal_id: String,
    labels: HashMap<String, String>,
    image: String,
    network_namespace: String,
    created: i64,
}

impl Record {
    /// Keeps the fields that are shown; a specification may be long.
    pub(super) fn new(container: api::Container) -> Self {
        let spec = container
            .spec
            .map(|spec| Spec::parse(&spec.value))
            .unwrap_or_default();
        let created = container.created_at.map_or(0, |time| {
            time.seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(i64::from(time.nanos))
        });
        Self {
            internal_id: container.id,
            labels: container.labels,
            image: container.image,
            network_namespace: spec.network_namespace(),
            created,
        }
    }

    pub(super) fn needs_tag(&self) -> bool {
        !self.image.is_empty() && !has_tag(&self.image)
    }

    pub(super) fn with(self, namespace: &str, task: Option<&Process>, tags: &Tags) -> Container {
        let names = Names::from_labels(&self.internal_id, &self.labels);
        let status = task.map_or(Status::Stopped, Process::status);
        let ended = status == Status::Stopped;
        Container {
            namespace: namespace.to_owned(),
            id: names.id,
            pod_id: names.pod_id,
            name: names.name,
            internal_id: self.internal_id,
            uid: names.uid,
            image: tags.name(&self.image),
            // An exited task still reports its PID, which may have been reused.
            pid: task.filter(|_| !ended).map_or(0, |task| task.pid),
            status: word(status),
            network_namespace: self.network_namespace,
            kind: names.kind,
            running: matches!(status, Status::Running | Status::Paused | Status::Pausing),
            created: self.created,
        }
    }
}

/// Returns the name of a state.
fn word(status: Status) -> &'static str {
    match status {
        Status::Unknown => "UNKNOWN",
        Status::Created => "CREATED",
        Status::Running => "RUNNING",
        Status::Stopped => "STOPPED",
        Status::Paused => "PAUSED",
        Status::Pausing => "PAUSING",
    }
}
