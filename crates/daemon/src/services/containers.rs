//! `Containers`, `Stats`, `Restart`: the workloads of the node.

use mainstay_api::common::ContainerDriver;
use mainstay_api::os::{
    Container, ContainerInfo, ContainersRequest, Restart, RestartRequest, Stat, Stats, StatsRequest,
};
use mainstay_containers::{ContainerError, Driver};
use tonic::{Code, Status};

use super::workload_status;
use crate::chain::chain;
use crate::node::Node;
use crate::workloads::{Scope, Workload, WorkloadUsage};

pub(super) async fn list(node: &Node, request: &ContainersRequest) -> Result<Container, Status> {
    let found = node
        .workloads
        .list(scope(&request.namespace, request.driver)?);
    let found = found
        .await
        .map_err(|error| workload_status::status(&error))?;
    Ok(Container {
        metadata: None,
        containers: found.into_iter().map(info).collect(),
    })
}

pub(super) async fn stats(node: &Node, request: &StatsRequest) -> Result<Stats, Status> {
    let used = node
        .workloads
        .usage(scope(&request.namespace, request.driver)?);
    let used = used
        .await
        .map_err(|error| workload_status::status(&error))?;
    Ok(Stats {
        metadata: None,
        stats: used.into_iter().map(stat).collect(),
    })
}

pub(super) async fn restart(node: &Node, request: &RestartRequest) -> Result<Restart, Status> {
    let scope = scope(&request.namespace, request.driver)?;
    let done = node.workloads.restart(scope, &request.id).await;
    done.map_err(|error| workload_status::status(&error))?;
    Ok(Restart { metadata: None })
}

pub(super) fn scope(namespace: &str, driver: i32) -> Result<Scope<'_>, Status> {
    let driver = match ContainerDriver::try_from(driver) {
        Ok(ContainerDriver::Containerd) => Driver::Containerd,
        Ok(ContainerDriver::Cri) => Driver::Cri,
        Err(_) => {
            return Err(Status::invalid_argument(format!(
                "driver {driver} is unknown; 0 is containerd, 1 is CRI"
            )));
        }
    };
    Ok(Scope { namespace, driver })
}

fn info(workload: Workload) -> ContainerInfo {
    ContainerInfo {
        namespace: workload.namespace,
        id: workload.id,
        image: workload.image,
        pid: workload.pid,
        status: workload.state.to_owned(),
        pod_id: workload.pod,
        name: workload.name,
        network_namespace: workload.network_namespace,
        internal_id: workload.internal_id,
        uid: workload.uid,
    }
}

fn stat(usage: WorkloadUsage) -> Stat {
    Stat {
        namespace: usage.namespace,
        id: usage.id,
        memory_usage: usage.memory_bytes,
        cpu_usage: usage.cpu_nanos,
        pod_id: usage.pod,
        name: usage.name,
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
    Status::new(code, chain(error))
}
