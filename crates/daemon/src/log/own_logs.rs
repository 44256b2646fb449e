//! Reading of the daemon's own logs: every line pushed before is read.

use mainstay_journal::{LogError, LogQuery, LogStore, LogStream};

use super::{AUDIT_LOG, DAEMON_LOG, DENIED_LOG, Lines};

/// The logs that the daemon writes itself, by name.
#[derive(Debug, Clone)]
pub struct OwnLogs {
    pub store: LogStore,
    pub daemon: Lines,
    pub audit: Lines,
    pub denied: Lines,
}

impl OwnLogs {
    /// Opens a log of the store. Lines that gather in memory are written first.
    pub async fn read(&self, log: &str, query: LogQuery) -> Result<LogStream, LogError> {
        let lines = match log {
            DAEMON_LOG => Some(&self.daemon),
            AUDIT_LOG => Some(&self.audit),
            DENIED_LOG => Some(&self.denied),
            _ => None,
        };
        if let Some(lines) = lines.cloned() {
            // A disk that does not answer delays the read, which shows what there is.
            let _ = tokio::task::spawn_blocking(move || lines.flush()).await;
        }
        self.store.read(log, query).await
    }
}
