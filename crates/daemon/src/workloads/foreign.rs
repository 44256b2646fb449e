//! Containers of other runtimes as workloads.

use mainstay_containers::{Container, ContainerError, Instance};
use mainstay_journal::{LogError, LogQuery, LogStore, LogStream};

use super::{LogSelector, Scope, Source, Workload, WorkloadError, WorkloadUsage};
use crate::engines::Engines;
use crate::engines::containers::Containers;

#[derive(Debug)]
pub struct ForeignContainers {
    containers: Containers,
    logs: LogStore,
}

impl ForeignContainers {
    pub(super) fn new(engines: &Engines) -> Self {
        Self {
            containers: engines.containers.clone(),
            logs: engines.journal.logs.clone(),
        }
    }

    async fn open_log(
        &self,
        log: LogSelector<'_>,
        query: LogQuery,
    ) -> Result<LogStream, WorkloadError> {
        let id = || log.id.to_owned();
        let instance = if log.previous {
            Instance::Previous
        } else {
            Instance::Current
        };
        let Scope { namespace, driver } = log.scope;
        let engine = self.containers.current();
        let found = engine.log(namespace, log.id, driver, instance).await;
        let file = found.map_err(|error| match error {
            ContainerError::NotFound { .. } => WorkloadError::NoSuchWorkload { id: id() },
            error => WorkloadError::Container(error),
        })?;
        if !file.timed && (query.since.is_some() || query.until.is_some()) {
            return Err(WorkloadError::NoTimestamps { id: id() });
        }
        let opened = self.logs.read_file(&file.path, query).await;
        opened.map_err(|error| match error {
            LogError::NotFound { .. } => WorkloadError::NoLogFile {
                id: id(),
                path: file.path,
            },
            source @ LogError::Open { .. } => WorkloadError::UnreadableLogFile { id: id(), source },
            error => error.into(),
        })
    }
}

impl Source for ForeignContainers {
    async fn list(&self, scope: Scope<'_>) -> Result<Vec<Workload>, WorkloadError> {
        let engine = self.containers.current();
        let found = engine.list(scope.namespace, scope.driver).await;
        let containers = found.map_err(WorkloadError::Container)?;
        Ok(containers.into_iter().map(workload).collect())
    }

    async fn usage(&self, scope: Scope<'_>) -> Result<Vec<WorkloadUsage>, WorkloadError> {
        let engine = self.containers.current();
        let found = engine.usage(scope.namespace, scope.driver).await;
        let found = found.map_err(WorkloadError::Container)?.into_iter();
        Ok(found
            .map(|(container, usage)| WorkloadUsage {
                namespace: container.namespace,
                id: container.id,
                pod: container.pod_id,
                name: container.name,
                memory_bytes: usage.memory_bytes,
                cpu_nanos: usage.cpu_nanos,
            })
            .collect())
    }

    async fn restart(&self, scope: Scope<'_>, id: &str) -> Option<Result<(), WorkloadError>> {
        let engine = self.containers.current();
        let done = engine.restart(scope.namespace, id, scope.driver).await;
        Some(done.map_err(WorkloadError::Container))
    }

    async fn log(
        &self,
        log: LogSelector<'_>,
        query: LogQuery,
    ) -> Option<Result<LogStream, WorkloadError>> {
        Some(self.open_log(log, query).await)
    }

    /// Runtimes are not asked: their logs are found through the list of containers.
    async fn log_ids(&self) -> Result<Vec<String>, WorkloadError> {
        Ok(Vec::new())
    }
}

fn workload(container: Container) -> Workload {
    Workload {
        namespace: container.namespace,
        id: container.id,
        pod: container.pod_id,
        name: container.name,
        state: container.status,
        pid: container.pid,
        image: container.image,
        network_namespace: container.network_namespace,
        internal_id: container.internal_id,
        uid: container.uid,
    }
}
