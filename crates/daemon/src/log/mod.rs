//! The daemon's own logs: `mainstay` (its events and every call), `audit` (every call that changes
//! something or reads secrets) and `denied` (every call that was refused before it began).
//!
//! All are ordinary sources of the log store, so `Logs id=mainstay` reads what `tail` reads. No
//! secret is ever written to them.

mod fold;
mod own_logs;
mod sink;
mod size_watch;
mod subscriber;

pub use fold::Repeatable;
pub use own_logs::OwnLogs;
pub use sink::{Lines, LogSink, SinkLimits};
pub use size_watch::{Alarm, Fullness};
pub use subscriber::{LogSubscriber, set_level};

/// The log of the daemon itself.
pub const DAEMON_LOG: &str = "mainstay";
/// Names that clients of this API know for the daemon's log: those of the daemons it replaces.
pub const DAEMON_ALIASES: [&str; 3] = ["machined", "apid", "osd"];
/// The kernel's log, which is read like one of the node's own.
pub const KERNEL_LOG: &str = "kernel";
/// The log of calls that change something.
pub const AUDIT_LOG: &str = "audit";
/// The log of calls that were refused. It is apart from the audit log so that refused calls, which
/// cost their caller nothing, cannot displace audited ones.
pub const DENIED_LOG: &str = "denied";

/// Returns whether an id is that of a log of the node's own.
pub fn is_reserved(id: &str) -> bool {
    let own = [DAEMON_LOG, AUDIT_LOG, DENIED_LOG, KERNEL_LOG];
    own.contains(&id) || DAEMON_ALIASES.contains(&id)
}
