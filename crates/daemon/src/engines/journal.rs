//! The journal engine: the daemon's log, the audit log, the event store and the log store.
//!
//! It is built first, so that everything after it can log and publish events.

use std::time::Duration;

use mainstay_api::machine::service_state_event::Action;
use mainstay_error_chain::chain;
use mainstay_journal::{EventError, EventRetention, EventStore};
use mainstay_journal::{LogError, LogLimits, LogRetention, LogStore, LogWriter};
use serde::{Deserialize, Serialize};
use tracing::{error, info, warn};

use super::{BuildError, Startup};
use crate::config::{ByteSize, Config, LogLevel, Span};
use crate::log::{
    AUDIT_LOG, Alarm, DAEMON_LOG, DENIED_LOG, Fullness, LogSink, LogSubscriber, OwnLogs,
    SinkLimits, set_level,
};
use crate::service_events::ServiceEvents;

/// Log lines of calls gather for this long before they are written together.
const LOG_WINDOW: Duration = Duration::from_millis(10);

pub const RESTART_KEYS: &[&str] = &[];

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LogSection {
    pub level: LogLevel,
    pub file_size: ByteSize,
    pub total_size: ByteSize,
}

/// `[audit]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AuditSection {
    pub keep_for: Span,
    pub max_size: ByteSize,
    pub denied_size: ByteSize,
}

/// `[events]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EventsSection {
    pub keep_events: u64,
    pub keep_for: Span,
    pub max_size: ByteSize,
}

impl Default for LogSection {
    fn default() -> Self {
        Self {
            level: LogLevel::Info,
            file_size: ByteSize(16 << 20),
            total_size: ByteSize(64 << 20),
        }
    }
}

impl Default for AuditSection {
    fn default() -> Self {
        Self {
            keep_for: Span(Duration::from_secs(90 * 24 * 60 * 60)),
            max_size: ByteSize(512 << 20),
            denied_size: ByteSize(16 << 20),
        }
    }
}

impl Default for EventsSection {
    fn default() -> Self {
        Self {
            keep_events: 10_000,
            keep_for: Span(Duration::from_secs(24 * 60 * 60)),
            max_size: ByteSize(64 << 20),
        }
    }
}

impl LogSection {
    fn limits(&self) -> SinkLimits {
        SinkLimits {
            log: LogLimits {
                file_bytes: self.file_size.0,
                total_bytes: self.total_size.0,
            },
            retention: None,
        }
    }
}

impl AuditSection {
    fn retention(&self) -> LogRetention {
        LogRetention {
            min_age: self.keep_for.0,
            max_bytes: self.max_size.0,
        }
    }

    /// Whole files are removed: several have to fit into each limit.
    fn limits(&self, log: &LogSection) -> SinkLimits {
        SinkLimits {
            log: LogLimits {
                file_bytes: log.file_size.0.min(self.max_size.0 / 8),
                total_bytes: log.total_size.0,
            },
            retention: Some(self.retention()),
        }
    }

    fn denied_limits(&self, log: &LogSection) -> SinkLimits {
        SinkLimits {
            log: LogLimits {
                file_bytes: log.file_size.0.min(self.denied_size.0 / 4),
                total_bytes: self.denied_size.0,
            },
            retention: None,
        }
    }
}

impl EventsSection {
    fn retention(&self) -> EventRetention {
        EventRetention {
            min_events: self.keep_events,
            min_age: self.keep_for.0,
            max_bytes: self.max_size.0,
        }
    }
}

/// The journals every engine and service writes to and reads from.
#[derive(Debug)]
pub struct Journal {
    pub daemon_log: LogSink,
    pub audit_log: LogSink,
    pub denied_log: LogSink,
    pub logs: LogStore,
    pub events: EventStore,
    /// Publishes state changes of services, the daemon's own among them.
    pub service_events: ServiceEvents,
}

impl Journal {
    /// Returns the daemon's own logs for reading.
    pub fn own_logs(&self) -> OwnLogs {
        OwnLogs {
            store: self.logs.clone(),
            daemon: self.daemon_log.lines(),
            audit: self.audit_log.lines(),
            denied: self.denied_log.lines(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum JournalError {
    #[error("cannot open the logs")]
    Logs(#[source] LogError),
    #[error("cannot open the event store")]
    Events(#[source] EventError),
    #[error("cannot start a log writer thread")]
    Thread(#[source] std::io::Error),
}

pub async fn build(startup: Startup<'_>) -> Result<Journal, BuildError> {
    let settings = &startup.config.settings;
    let root = startup.state.logs();
    let open = |source: &str, limits: SinkLimits| {
        LogWriter::open_retained(&root, source, limits.log, limits.retention)
            .map(LogWriter::recreate_deleted)
            .map_err(JournalError::Logs)
    };
    let daemon_log = open(DAEMON_LOG, settings.log.limits())?;
    let daemon_log = LogSink::start(daemon_log, LOG_WINDOW).map_err(JournalError::Thread)?;
    set_level(settings.log.level);
    // Fails only where a subscriber is installed already, as in a process with two daemons.
    let _ = tracing::subscriber::set_global_default(LogSubscriber::new(daemon_log.lines(), true));
    let version = &startup.build.version;
    info!(%version, state = %startup.state.path().display(), "starting");

    let events = EventStore::open(&startup.state.events(), settings.events.retention())
        .map_err(JournalError::Events)?;
    let service_events = ServiceEvents::new(events.clone());
    service_events.daemon(Action::Starting, &format!("mainstay {version} is starting"));
    let audit = &settings.audit;
    let audit_log = open(AUDIT_LOG, audit.limits(&settings.log))?;
    let watched = Some((audit.retention(), audit_alarm(service_events.clone())));
    let audit_log = LogSink::start_watched(audit_log, Duration::ZERO, watched);
    let denied_log = open(DENIED_LOG, audit.denied_limits(&settings.log))?;
    let denied_log = LogSink::start(denied_log, LOG_WINDOW);
    Ok(Journal {
        daemon_log,
        audit_log: audit_log.map_err(JournalError::Thread)?,
        denied_log: denied_log.map_err(JournalError::Thread)?,
        logs: LogStore::open(&root).map_err(JournalError::Logs)?,
        events,
        service_events,
    })
}

pub fn reload(journal: &Journal, _: &Config, new: &Config) {
    let (log, audit) = (&new.settings.log, &new.settings.audit);
    set_level(log.level);
    journal.daemon_log.set_limits(log.limits());
    journal.audit_log.set_limits(audit.limits(log));
    journal.denied_log.set_limits(audit.denied_limits(log));
    journal
        .events
        .set_retention(new.settings.events.retention());
}

/// Makes everything durable. Lines logged afterwards are lost.
pub async fn stop(journal: &Journal) {
    if let Err(why) = journal.events.sync() {
        error!(error = chain(&why), "cannot write the events to disk");
    }
    journal.audit_log.close();
    journal.denied_log.close();
    journal.daemon_log.close();
}

/// Reports the audit log's size in the daemon's log and as an event.
fn audit_alarm(events: ServiceEvents) -> Alarm {
    Box::new(move |fullness| {
        let message = match fullness {
            Fullness::Filling { bytes, max_bytes } => {
                warn!(bytes, max_bytes, "audit log nears its size limit");
                format!(
                    "audit log nears its size limit: {bytes} of {max_bytes} bytes; save it and \
                     raise audit.max_size before entries are removed"
                )
            }
            Fullness::RemovedEarly { files, max_bytes } => {
                error!(files, max_bytes, "audit entries removed before their time");
                format!(
                    "audit entries removed before audit.keep_for has passed: the log exceeded \
                     {max_bytes} bytes; raise audit.max_size"
                )
            }
        };
        events.daemon(Action::Running, &message);
    })
}
