//! Services as workloads of the namespace `system`, by their names.

use mainstay_containers::Driver;
use mainstay_journal::{LogError, LogQuery, LogStream, Stream, Timestamp};
use mainstay_supervisor::core::State;
use mainstay_supervisor::{ServiceStatus, Supervisor};

use super::{
    LogSelector, ProcessOutput, SYSTEM_NAMESPACE, Scope, Source, Workload, WorkloadError,
    WorkloadUsage,
};
use crate::engines::Engines;

#[derive(Debug)]
pub struct ServiceWorkloads {
    services: Supervisor,
}

impl ServiceWorkloads {
    pub(super) fn new(engines: &Engines) -> Self {
        Self {
            services: engines.services.clone(),
        }
    }

    /// Opens the output of a process of a service; `None` if no service had this PID.
    pub(super) async fn process_output(
        &self,
        pid: i64,
        channel: Stream,
        since: Option<Timestamp>,
    ) -> Option<Result<ProcessOutput, WorkloadError>> {
        let cells = self.services.cells();
        let found = cells.find_run(i32::try_from(pid).ok()?)?;
        Some(ProcessOutput::open(cells.clone(), found, channel, since).await)
    }
}

fn in_scope(scope: Scope<'_>) -> bool {
    scope.driver == Driver::Containerd && matches!(scope.namespace, "" | SYSTEM_NAMESPACE)
}

impl Source for ServiceWorkloads {
    async fn list(&self, scope: Scope<'_>) -> Result<Vec<Workload>, WorkloadError> {
        if !in_scope(scope) {
            return Ok(Vec::new());
        }
        let services = self.services.list().into_iter();
        Ok(services.map(workload).collect())
    }

    async fn usage(&self, scope: Scope<'_>) -> Result<Vec<WorkloadUsage>, WorkloadError> {
        if !in_scope(scope) {
            return Ok(Vec::new());
        }
        let services = self.services.clone();
        let read = tokio::task::spawn_blocking(move || {
            let running = services.list().into_iter().filter(|one| one.pid.is_some());
            // One that exits meanwhile uses nothing any more.
            running
                .filter_map(|service| usage(&services, &service))
                .collect()
        });
        read.await.map_err(|_| WorkloadError::Panicked {
            what: "resource usage of services",
        })
    }

    async fn restart(&self, scope: Scope<'_>, id: &str) -> Option<Result<(), WorkloadError>> {
        if !in_scope(scope) || scope.namespace.is_empty() {
            return None;
        }
        self.services.find(id)?;
        let done = self.services.restart(id).await;
        Some(done.map_err(WorkloadError::Service))
    }

    /// Claims the logs of known services.
    async fn log(
        &self,
        log: LogSelector<'_>,
        query: LogQuery,
    ) -> Option<Result<LogStream, WorkloadError>> {
        if !in_scope(log.scope) {
            return None;
        }
        let key = self.services.log_key(log.id)?;
        if log.previous {
            return Some(Err(WorkloadError::NoPreviousRun));
        }
        let logs = self.services.cells().logs();
        let opened = match logs.read(&key, query).await {
            // It has not been started yet.
            Err(LogError::NotFound { .. }) => {
                let (store, name) = (logs.clone(), key.clone());
                let created = tokio::task::spawn_blocking(move || store.create(&name));
                match created.await {
                    Ok(Ok(())) => logs.read(&key, query).await,
                    Ok(Err(error)) => Err(error),
                    Err(_) => Err(LogError::Interrupted { log: key }),
                }
            }
            opened => opened,
        };
        Some(opened.map_err(WorkloadError::from))
    }

    async fn log_ids(&self) -> Result<Vec<String>, WorkloadError> {
        Ok(self.services.names())
    }
}

fn workload(service: ServiceStatus) -> Workload {
    Workload {
        namespace: SYSTEM_NAMESPACE.to_owned(),
        id: service.name.to_string(),
        pod: service.name.to_string(),
        name: service.name.to_string(),
        state: match service.status.state {
            State::Initialized => "INITIALIZED",
            State::Waiting => "WAITING",
            State::Starting => "STARTING",
            State::Running => "RUNNING",
            State::Stopping => "STOPPING",
            State::Finished => "FINISHED",
            State::Failed => "FAILED",
        },
        pid: service
            .pid
            .and_then(|pid| u32::try_from(pid).ok())
            .unwrap_or(0),
        // The program is the closest a service has to an image.
        image: service.program,
        ..Workload::default()
    }
}

fn usage(services: &Supervisor, service: &ServiceStatus) -> Option<WorkloadUsage> {
    let usage = services
        .cells()
        .usage(&service.cell, &service.executable)
        .ok()?;
    Some(WorkloadUsage {
        namespace: SYSTEM_NAMESPACE.to_owned(),
        id: service.name.to_string(),
        pod: service.name.to_string(),
        name: service.name.to_string(),
        memory_bytes: usage.memory_bytes,
        cpu_nanos: usage.cpu_nanos,
    })
}
