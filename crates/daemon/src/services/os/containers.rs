//! `Containers`, `Stats`, `Restart`: the workloads of the node.

use mainstay_api::common::ContainerDriver;
use mainstay_api::envelope;
use mainstay_api::os::{
    Container, ContainerInfo, ContainersRequest, ContainersResponse, Restart, RestartRequest,
    RestartResponse, Stat, Stats, StatsRequest, StatsResponse,
};
use mainstay_containers::Driver;
use mainstay_identity::rule;
use tonic::{Response, Status};

use crate::node::Node;
use crate::requester::Requester;
use crate::rpc::status;
use crate::workloads::{Scope, Workload, WorkloadUsage};

pub async fn list(
    node: &Node,
    request: &ContainersRequest,
) -> Result<Response<ContainersResponse>, Status> {
    let scope = scope(&request.namespace, request.driver)?;
    let found = node.workloads.list(scope).await;
    let found = found.map_err(|error| status::of_workloads(&error))?;
    Ok(Response::new(envelope(Container {
        metadata: None,
        containers: found.into_iter().map(info).collect(),
    })))
}

pub async fn stats(node: &Node, request: &StatsRequest) -> Result<Response<StatsResponse>, Status> {
    let scope = scope(&request.namespace, request.driver)?;
    let used = node.workloads.usage(scope).await;
    let used = used.map_err(|error| status::of_workloads(&error))?;
    Ok(Response::new(envelope(Stats {
        metadata: None,
        stats: used.into_iter().map(stat).collect(),
    })))
}

pub async fn restart(
    node: &Node,
    request: &RestartRequest,
) -> Result<Response<RestartResponse>, Status> {
    let scope = scope(&request.namespace, request.driver)?;
    if scope.is_cells() {
        check_may_start_cells()?;
    }
    let done = node.workloads.restart(scope, &request.id).await;
    done.map_err(|error| status::of_workloads(&error))?;
    Ok(Response::new(envelope(Restart { metadata: None })))
}

/// Checks the caller's role for a restart of a cell's executable, which needs that of Start and Stop:
/// a caller that may not run a program in a cell may not run it again either.
fn check_may_start_cells() -> Result<(), Status> {
    const START: &str = "/runtime.CellService/Start";
    let needs = rule(START).role;
    let has = Requester::current().role;
    if has >= Some(needs) {
        return Ok(());
    }
    let has = has.map_or("no role".to_owned(), |role| role.to_string());
    Err(Status::permission_denied(format!(
        "not authorized: restarting an executable of a cell needs {needs}, the caller has {has}"
    )))
}

/// Reads the namespace and driver that a request names.
pub fn scope(namespace: &str, driver: i32) -> Result<Scope<'_>, Status> {
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
