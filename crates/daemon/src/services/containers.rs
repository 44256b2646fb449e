//! `Containers`, `Stats`, `Restart`: what other runtimes run on the machine.

use mainstay_api::common::ContainerDriver;
use mainstay_api::os::{
    Container, ContainerInfo, ContainersRequest, Restart, RestartRequest, Stat, Stats, StatsRequest,
};
use mainstay_containers::{ContainerError, Containers, Driver};
use tonic::{Code, Status};

use crate::node::Node;

pub(super) async fn list(node: &Node, request: &ContainersRequest) -> Result<Container, Status> {
    let driver = driver(request.driver)?;
    let found = engine(node).list(&request.namespace, driver).await;
    let containers = found.map_err(|error| status(&error))?;
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
        containers: containers.into_iter().map(info).collect(),
    })
}

pub(super) async fn stats(node: &Node, request: &StatsRequest) -> Result<Stats, Status> {
    let driver = driver(request.driver)?;
    let used = engine(node).usage(&request.namespace, driver).await;
    let stats = used.map_err(|error| status(&error))?.into_iter();
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
        stats: stats.collect(),
    })
}

pub(super) async fn restart(node: &Node, request: &RestartRequest) -> Result<Restart, Status> {
    let driver = driver(request.driver)?;
    let engine = engine(node);
    let done = engine.restart(&request.namespace, &request.id, driver);
    done.await.map_err(|error| status(&error))?;
    Ok(Restart { metadata: None })
}

pub(super) fn engine(node: &Node) -> Containers {
    Containers::clone(&node.containers.load())
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
