//! The daemon's own logs: `mainstay` (its events and every call) and `audit` (every call that
//! changes something or reads secrets).
//!
//! Both are ordinary sources of the log store, so `Logs id=mainstay` reads what `tail` reads. No
//! secret is ever written to them.

mod sink;
mod subscriber;

pub use sink::{Lines, LogSink};
pub use subscriber::{LogSubscriber, set_level};

/// The log of the daemon itself.
pub const DAEMON_LOG: &str = "mainstay";
/// The log of calls that change something.
pub const AUDIT_LOG: &str = "audit";
