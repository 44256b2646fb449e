//! The journal engine: the daemon's log, the audit log, the event store and the log store.
//!
//! It is built first, so that everything after it can log and publish events.

use std::path::Path;
use std::time::Duration;

use mainstay_api::machine::service_state_event::Action;
use mainstay_error_chain::chain;
use mainstay_journal::{EventError, EventRetention, EventStore};
use mainstay_journal::{LogError, LogLimits, LogStore, LogWriter};
use serde::{Deserialize, Serialize};
use tracing::{error, info};

use super::{BuildError, Startup};
use crate::config::{ByteSize, Config, LogLevel, Span};
use crate::log::{AUDIT_LOG, DAEMON_LOG, LogSink, LogSubscriber, set_level};
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
    fn limits(&self) -> LogLimits {
        LogLimits {
            file_bytes: self.file_size.0,
            total_bytes: self.total_size.0,
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
    pub logs: LogStore,
    pub events: EventStore,
    /// Publishes state changes of services, the daemon's own among them.
    pub service_events: ServiceEvents,
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
    let limits = settings.log.limits();
    let daemon_log = open_log(&root, DAEMON_LOG, limits, LOG_WINDOW)?;
    let audit_log = open_log(&root, AUDIT_LOG, limits, Duration::ZERO)?;
    set_level(settings.log.level);
    // Fails only where a subscriber is installed already, as in a process with two daemons.
    let _ = tracing::subscriber::set_global_default(LogSubscriber::new(daemon_log.lines(), true));
    let version = &startup.build.version;
    info!(%version, state = %startup.state.path().display(), "starting");

    let events = EventStore::open(&startup.state.events(), settings.events.retention())
        .map_err(JournalError::Events)?;
    let service_events = ServiceEvents::new(events.clone());
    service_events.daemon(Action::Starting, &format!("mainstay {version} is starting"));
    Ok(Journal {
        daemon_log,
        audit_log,
        logs: LogStore::open(&root).map_err(JournalError::Logs)?,
        events,
        service_events,
    })
}

pub fn reload(journal: &Journal, _: &Config, new: &Config) {
    let log = &new.settings.log;
    set_level(log.level);
    journal.daemon_log.set_limits(log.limits());
    journal.audit_log.set_limits(log.limits());
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
    journal.daemon_log.close();
}

fn open_log(
    root: &Path,
    source: &str,
    limits: LogLimits,
    window: Duration,
) -> Result<LogSink, JournalError> {
    let writer = LogWriter::open(root, source, limits).map_err(JournalError::Logs)?;
    LogSink::start(writer, window).map_err(JournalError::Thread)
}
