//! The logs of the node's own services. They are not workloads yet: nothing to list or restart.

use mainstay_journal::{LogError, LogQuery, LogStream};

use super::{LogSelector, SYSTEM_NAMESPACE, Scope, Source, Workload, WorkloadError, WorkloadUsage};
use crate::engines::Engines;
use crate::log::{DAEMON_ALIASES, DAEMON_LOG, OwnLogs};

#[derive(Debug)]
pub struct SystemLogs {
    logs: OwnLogs,
}

impl SystemLogs {
    pub(super) fn new(engines: &Engines) -> Self {
        Self {
            logs: engines.journal.own_logs(),
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
        let own = matches!(log.scope.namespace, "" | SYSTEM_NAMESPACE);
        let name = match log.id {
            alias if own && DAEMON_ALIASES.contains(&alias) => DAEMON_LOG,
            name => name,
        };
        match self.logs.read(name, query).await {
            Ok(_) if log.previous => Some(Err(WorkloadError::NoPreviousLog { id: id() })),
            Ok(lines) => Some(Ok(lines)),
            Err(LogError::NotFound { .. } | LogError::InvalidName { .. }) => {
                own.then(|| Err(WorkloadError::NoSuchLog { id: id() }))
            }
            Err(error) => Some(Err(error.into())),
        }
    }

    async fn log_ids(&self) -> Result<Vec<String>, WorkloadError> {
        let logs = self.logs.store.clone();
        let sources = tokio::task::spawn_blocking(move || logs.sources()).await;
        let sources = sources.map_err(|_| WorkloadError::Panicked {
            what: "list of logs",
        })?;
        Ok(sources?)
    }
}
