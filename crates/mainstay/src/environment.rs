//! The environment variables that the command reads.

use std::path::PathBuf;

pub const CONFIG: &str = "MAINSTAY_CONFIG";
pub const CONTEXT: &str = "MAINSTAY_CONTEXT";
pub const STATE: &str = "MAINSTAY_STATE";

/// Returns the state directory of a node on this machine: `$MAINSTAY_STATE`, else the default of
/// this user.
pub fn local_state() -> Option<PathBuf> {
    match std::env::var_os(STATE) {
        Some(state) => Some(PathBuf::from(state)),
        None => mainstay_daemon::config::default_state().ok(),
    }
}
