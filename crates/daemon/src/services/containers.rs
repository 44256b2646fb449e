//! `Containers`, `Stats`, `Restart`: what other runtimes run on the machine, and our own cells.

use mainstay_api::common::ContainerDriver;
use mainstay_api::os::{
    Container, ContainerInfo, ContainersRequest, Restart, RestartRequest, Stat, Stats, StatsRequest,
};
use mainstay_containers::{ContainerError, Containers, Driver};
use tonic::{Code, Status};

use super::{cell_containers, cell_logs};
use crate::node::Node;

pub(super) async fn list(node: &Node, request: &ContainersRequest) -> Result<Container, Status> {
    let driver = driver(request.driver)?;
    let own =
        is_ours(driver, &request.namespace).then(|| cell_containers::list(&node.engines.cells));
    let own = own.unwrap_or_default();
    let found = engine(node).list(&request.namespace, driver).await;
    let containers = beside(found, own.is_empty())?;
    let info = |container: mainstay_containers::Container| ContainerInfo {
        namespace: container.namespace,
        id: container.id,
        image: container.image,
        pid: container.pid,
        status: container.status.to_owned(),
        pod_id: container.pod_id,
        name: container.name,
        network_namespace: container.network_namespace,
        internal_id: container.internal_id,
        uid: container.uid,
    };
    Ok(Container {
        metadata: None,
        containers: own
            .into_iter()
            .chain(containers.into_iter().map(info))
            .collect(),
    })
}

pub(super) async fn stats(node: &Node, request: &StatsRequest) -> Result<Stats, Status> {
    let driver = driver(request.driver)?;
    let own = if is_ours(driver, &request.namespace) {
        cell_containers::stats(&node.engines.cells).await?
    } else {
        Vec::new()
    };
    let used = engine(node).usage(&request.namespace, driver).await;
    let stats = beside(used, own.is_empty())?.into_iter();
    let stats = stats.map(|(container, usage)| Stat {
        namespace: container.namespace,
        id: container.id,
        memory_usage: usage.memory_bytes,
        cpu_usage: usage.cpu_nanos,
        pod_id: container.pod_id,
        name: container.name,
    });
    Ok(Stats {
        metadata: None,
        stats: own.into_iter().chain(stats).collect(),
    })
}

pub(super) async fn restart(node: &Node, request: &RestartRequest) -> Result<Restart, Status> {
    let driver = driver(request.driver)?;
    if driver == Driver::Containerd && request.namespace == cell_logs::NAMESPACE {
        cell_containers::restart(&node.engines.cells, &request.id).await?;
        return Ok(Restart { metadata: None });
    }
    let engine = engine(node);
    let done = engine.restart(&request.namespace, &request.id, driver);
    done.await.map_err(|error| status(&error))?;
    Ok(Restart { metadata: None })
}

/// Whether the node's own workloads are meant, alone or among all.
fn is_ours(driver: Driver, namespace: &str) -> bool {
    driver == Driver::Containerd && matches!(namespace, "" | cell_logs::NAMESPACE)
}

/// What others run, beside our own: where there is something of ours to show, a runtime that is
/// not installed is no error.
fn beside<T>(found: Result<Vec<T>, ContainerError>, alone: bool) -> Result<Vec<T>, Status> {
    match found {
        Err(ContainerError::Unreachable { absent: true, .. }) if !alone => Ok(Vec::new()),
        found => found.map_err(|error| status(&error)),
    }
}

pub(super) fn engine(node: &Node) -> Containers {
    node.engines.containers.current()
}

pub(super) fn driver(driver: i32) -> Result<Driver, Status> {
    match ContainerDriver::try_from(driver) {
        Ok(ContainerDriver::Containerd) => Ok(Driver::Containerd),
        Ok(ContainerDriver::Cri) => Ok(Driver::Cri),
        Err(_) => Err(Status::invalid_argument(format!(
            "driver {driver} is unknown; 0 is containerd, 1 is CRI"
        ))),
    }
}

pub(super) fn status(error: &ContainerError) -> Status {
    use ContainerError as Error;
    let code = match error {
        Error::NotFound { .. } | Error::NoPrevious { .. } => Code::NotFound,
        Error::NoId
        | Error::InvalidId { .. }
        | Error::InvalidNamespace { .. }
        | Error::NotKubernetes { .. }
        | Error::Ambiguous { .. } => Code::InvalidArgument,
        Error::Unreachable { .. } | Error::Interrupted { .. } => Code::Unavailable,
        Error::Silent { .. } => Code::DeadlineExceeded,
        Error::Restarting { .. } => Code::Aborted,
        Error::NotSpoken { .. }
        | Error::NotRunning { .. }
        | Error::OfDocker { .. }
        | Error::Detached { .. }
        | Error::NoLog { .. } => Code::FailedPrecondition,
        Error::Refused { .. } | Error::Unstoppable { .. } | Error::NotStarted { .. } => {
            Code::Internal
        }
    };
    Status::new(code, error.to_string())
}
