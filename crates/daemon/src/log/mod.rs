//! The daemon's own logs: `mainstay` (what it does, and every call) and `audit` (every call that
//! changes something or takes secrets out).
//!
//! Both are sources of the logs journal like any other, so `Logs id=mainstay` reads what
//! `tail` reads. Nothing secret is ever handed to them.

mod sink;
mod subscriber;

pub use sink::{Lines, LogSink};
pub use subscriber::{LogSubscriber, set_level};

/// The log of the daemon itself.
pub const DAEMON_LOG: &str = "mainstay";
/// The log of calls that change something.
pub const AUDIT_LOG: &str = "audit";
