//! The CRI driver: pods and containers of Kubernetes, under any runtime.
//!
//! CRI reports PIDs and network namespaces only container by container, in the part of the answer
//! that each runtime defines. They are requested for running containers only, a few at a time.

mod info;
mod list;

use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

use mainstay_container_clients::cri::image_service_client::ImageServiceClient;
use mainstay_container_clients::cri::runtime_service_client::RuntimeServiceClient;
use mainstay_container_clients::cri::{
    ContainerStats, ContainerStatus, ContainerStatusRequest, ListContainerStatsRequest,
    StopContainerRequest, StopPodSandboxRequest,
};
use tonic::transport::Channel;

use crate::cgroup::Hierarchies;
use crate::connection::{Connection, MAX_MESSAGE_BYTES};
use crate::container::{Container, Kind, Usage};
use crate::error::{ContainerError, NoLog};
use crate::log::LogFile;

/// The only namespace Kubernetes uses.
pub(crate) const KUBERNETES: &str = "k8s.io";

/// The grace period of a container whose pod sets none.
const GRACE: Duration = Duration::from_secs(10);
/// The annotation with the grace period of the pod, in seconds.
const GRACE_ANNOTATION: &str = "io.kubernetes.pod.terminationGracePeriod";

#[derive(Debug)]
pub(crate) struct Cri {
    connection: Connection,
}

impl Cri {
    pub(crate) fn new(connection: Connection) -> Self {
        Self { connection }
    }

    pub(crate) async fn usage(&self) -> Result<Vec<(Container, Usage)>, ContainerError> {
        let mut client = self.runtime();
        let stats = client.list_container_stats(ListContainerStatsRequest::default());
        let stats = self.connection.call("measure containers", stats);
        let (containers, stats) = tokio::try_join!(self.list(), stats)?;
        let used: HashMap<String, Usage> = stats.stats.into_iter().filter_map(measured).collect();
        let sandboxes = sandbox_usage(&containers).await;
        Ok(containers
            .into_iter()
            .map(|container| {
                let usage = match container.kind {
                    Kind::Sandbox => sandboxes.get(&container.pid),
                    _ => used.get(&container.internal_id),
                };
                let usage = usage.copied().filter(|_| container.running);
                (container, usage.unwrap_or_default())
            })
            .collect())
    }

    /// Stops a container within its grace period, or a sandbox with all its containers. A container
    /// of Kubernetes starts only once: its kubelet creates the next one.
    pub(crate) async fn stop(&self, container: &Container) -> Result<(), ContainerError> {
        if !container.running {
            return Err(ContainerError::NotRunning {
                id: container.id.clone(),
            });
        }
        let mut client = self.runtime();
        if container.kind == Kind::Sandbox {
            let request = StopPodSandboxRequest {
                pod_sandbox_id: container.internal_id.clone(),
            };
            let timeout = self.connection.timeout() + GRACE;
            let call = client.stop_pod_sandbox(request);
            self.connection
                .call_within(timeout, "stop the pod", call)
                .await?;
            return Ok(());
        }
        let status = self.status(container).await?;
        let annotation = status.annotations.get(GRACE_ANNOTATION);
        let grace = annotation
            .and_then(|seconds| seconds.parse().ok())
            .map_or(GRACE, Duration::from_secs);
        let request = StopContainerRequest {
            container_id: container.internal_id.clone(),
            timeout: i64::try_from(grace.as_secs()).unwrap_or(i64::MAX),
        };
        let timeout = self.connection.timeout().saturating_add(grace);
        let call = client.stop_container(request);
        self.connection
            .call_within(timeout, "stop the container", call)
            .await?;
        Ok(())
    }

    pub(crate) async fn log(&self, container: &Container) -> Result<LogFile, ContainerError> {
        let no_log = |why| ContainerError::NoLog {
            id: container.id.clone(),
            why,
        };
        if container.kind == Kind::Sandbox {
            return Err(no_log(NoLog::Sandbox));
        }
        let status = self.status(container).await?;
        if status.log_path.is_empty() {
            return Err(no_log(NoLog::NotAsked));
        }
        Ok(LogFile {
            path: PathBuf::from(status.log_path),
            timed: true,
        })
    }

    async fn status(&self, container: &Container) -> Result<ContainerStatus, ContainerError> {
        let request = ContainerStatusRequest {
            container_id: container.internal_id.clone(),
            verbose: false,
        };
        let not_found = || ContainerError::NotFound {
            id: container.id.clone(),
        };
        let mut client = self.runtime();
        let call = client.container_status(request);
        match self.connection.call("show a container", call).await {
            Ok(answer) => answer.status.ok_or_else(not_found),
            Err(ContainerError::Refused { status, .. })
                if status.code() == tonic::Code::NotFound =>
            {
                Err(not_found())
            }
            Err(error) => Err(error),
        }
    }

    fn runtime(&self) -> RuntimeServiceClient<Channel> {
        RuntimeServiceClient::new(self.connection.channel())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }

    fn images(&self) -> ImageServiceClient<Channel> {
        ImageServiceClient::new(self.connection.channel())
            .max_decoding_message_size(MAX_MESSAGE_BYTES)
    }
}

fn measured(stats: ContainerStats) -> Option<(String, Usage)> {
    let memory = stats.memory.and_then(|memory| memory.working_set_bytes);
    let cpu = stats.cpu.and_then(|cpu| cpu.usage_core_nano_seconds);
    let usage = Usage {
        memory_bytes: memory.unwrap_or_default().value,
        cpu_nanos: cpu.unwrap_or_default().value,
    };
    Some((stats.attributes?.id, usage))
}

/// Reads the usage of sandboxes by PID from their cgroups: CRI reports a pod as a whole, which
/// would count its containers twice.
async fn sandbox_usage(containers: &[Container]) -> HashMap<u32, Usage> {
    let of_sandbox = |container: &&Container| container.kind == Kind::Sandbox;
    let pids: Vec<u32> = containers
        .iter()
        .filter(of_sandbox)
        .map(|container| container.pid)
        .filter(|pid| *pid != 0)
        .collect();
    let measure = move || {
        let Ok(hierarchies) = Hierarchies::detect() else {
            return HashMap::new();
        };
        let usage = |pid: u32| Some((pid, hierarchies.usage(pid).ok()?));
        pids.into_iter().filter_map(usage).collect()
    };
    tokio::task::spawn_blocking(measure)
        .await
        .unwrap_or_default()
}
