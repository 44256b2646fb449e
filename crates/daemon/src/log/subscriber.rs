//! Writes `tracing` events as lines to the daemon's log and to stderr.
//!
//! Each line names the subsystem it comes from, which is part of the event's static target and
//! costs nothing while the event is disabled. There are no spans, so there is no registry to keep.
//! Events of other crates are logged from warnings up.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};

use mainstay_journal::Timestamp;
use tracing::field::{Field, Visit};
use tracing::metadata::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::Lines;
use crate::config::LogLevel;

/// The level in force, as the number of levels logged (1 = errors only).
static SHOWN: AtomicU8 = AtomicU8::new(3);

/// Changes the level from now on.
pub fn set_level(level: LogLevel) {
    SHOWN.store(rank(level), Ordering::Relaxed);
    tracing::callsite::rebuild_interest_cache();
}

fn rank(level: LogLevel) -> u8 {
    match level {
        LogLevel::Error => 1,
        LogLevel::Warn => 2,
        LogLevel::Info => 3,
        LogLevel::Debug => 4,
        LogLevel::Trace => 5,
    }
}

fn rank_of(level: Level) -> u8 {
    match level {
        Level::ERROR => 1,
        Level::WARN => 2,
        Level::INFO => 3,
        Level::DEBUG => 4,
        Level::TRACE => 5,
    }
}

#[derive(Debug)]
pub struct LogSubscriber {
    lines: Lines,
    to_stderr: bool,
}

impl LogSubscriber {
    pub fn new(lines: Lines, to_stderr: bool) -> Self {
        Self { lines, to_stderr }
    }
}

impl Subscriber for LogSubscriber {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let shown = SHOWN.load(Ordering::Relaxed);
        let ours = metadata.target().starts_with("mainstay");
        metadata.is_event() && rank_of(*metadata.level()) <= if ours { shown } else { shown.min(2) }
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(match SHOWN.load(Ordering::Relaxed) {
            1 => LevelFilter::ERROR,
            2 => LevelFilter::WARN,
            3 => LevelFilter::INFO,
            4 => LevelFilter::DEBUG,
            _ => LevelFilter::TRACE,
        })
    }

    fn event(&self, event: &Event<'_>) {
        let time = Timestamp::now();
        let mut line = Line {
            text: format!("{time} {}", event.metadata().level()),
        };
        event.record(&mut line);
        let _ = write!(
            line.text,
            " subsystem={}",
            subsystem(event.metadata().target())
        );
        self.lines.push(time, line.text.as_bytes());
        if self.to_stderr {
            // A closed stderr must not end the daemon.
            let _ = writeln!(std::io::stderr(), "{}", line.text);
        }
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }
    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
    fn enter(&self, _: &span::Id) {}
    fn exit(&self, _: &span::Id) {}
}

struct Line {
    text: String,
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            let _ = write!(self.text, " {}", one_line(value));
        } else {
            let _ = write!(self.text, " {}={value:?}", field.name());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        let value = format!("{value:?}");
        if field.name() == "message" {
            let _ = write!(self.text, " {}", one_line(&value));
        } else if value.starts_with('"') || !value.contains([' ', '\n', '=']) {
            let _ = write!(self.text, " {}={value}", field.name());
        } else {
            let _ = write!(self.text, " {}={value:?}", field.name());
        }
    }
}

/// Returns the engine or the part of the daemon that a target names: `mainstay_cells::engine` is
/// `cells`, `mainstay_daemon::engines::journal` is `journal`.
fn subsystem(target: &str) -> &str {
    let mut parts = target.split("::");
    let package = parts.next().unwrap_or_default();
    let package = package.strip_prefix("mainstay_").unwrap_or(package);
    match (package, parts.next()) {
        ("daemon", Some("engines")) => parts.next().unwrap_or(package),
        ("daemon", Some(part)) => part,
        _ => package,
    }
}

/// Replaces newlines: one event is one line.
fn one_line(text: &str) -> std::borrow::Cow<'_, str> {
    if text.contains(['\n', '\r']) {
        text.replace(['\n', '\r'], " ").into()
    } else {
        text.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_the_engine_it_comes_from() {
        for (target, wanted) in [
            ("mainstay_cells::engine::start", "cells"),
            ("mainstay_daemon::engines::journal", "journal"),
            ("mainstay_daemon::engines::identity::renewal", "identity"),
            ("mainstay_daemon::listener::serve", "listener"),
            ("mainstay_daemon", "daemon"),
            ("h2::codec", "h2"),
        ] {
            assert_eq!(subsystem(target), wanted, "{target}");
        }
    }
}
