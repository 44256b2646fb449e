//! The logs of the node's own services. They are not workloads yet: nothing to list or restart.

use mainstay_journal::{LogError, LogQuery, LogStore, LogStream};

use super::{LogSelector, SYSTEM_NAMESPACE, Scope, Source, Workload, WorkloadError, WorkloadUsage};
use crate::engines::Engines;

#[derive(Debug)]
pub struct SystemLogs {
    logs: LogStore,
}

impl SystemLogs {
    pub(super) fn new(engines: &Engines) -> Self {
        Self {
            logs: engines.journal.logs.clone(),
        }
    }
}

impl Source for SystemLogs {
    async fn list(&self, _: Scope<'_>) -> Result<Vec<Workload>, WorkloadError> {
        Ok(Vec::new())
    }

    async fn usage(&self, _: Scope<'_>) -> Result<Vec<WorkloadUsage>, WorkloadError> {
        Ok(Vec::new())
    }

    async fn restart(&self, _: Scope<'_>, _: &str) -> Option<Result<(), WorkloadError>> {
        None
    }

    /// Claims every log it has, and the whole of its own namespace.
    async fn log(
        &self,
        log: LogSelector<'_>,
        query: LogQuery,
    ) -> Option<Result<LogStream, WorkloadError>> {
        let id = || log.id.to_owned();
        match self.logs.read(log.id, query).await {
            Ok(_) if log.previous => Some(Err(WorkloadError::NoPreviousLog { id: id() })),
            Ok(lines) => Some(Ok(lines)),
            Err(LogError::NotFound { .. } | LogError::InvalidName { .. }) => {
                let own = matches!(log.scope.namespace, "" | SYSTEM_NAMESPACE);
                own.then(|| Err(WorkloadError::NoSuchLog { id: id() }))
            }
            Err(error) => Some(Err(error.into())),
        }
    }

    async fn log_ids(&self) -> Result<Vec<String>, WorkloadError> {
        let logs = self.logs.clone();
        let sources = tokio::task::spawn_blocking(move || logs.sources()).await;
        let sources = sources.map_err(|_| WorkloadError::Panicked {
            what: "list of logs",
        })?;
        Ok(sources?)
    }
}
