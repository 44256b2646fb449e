//! The tracing of signals.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use super::{BuildError, Startup};
use crate::config::Config;

pub const RESTART_KEYS: &[&str] = &[];

/// The tracing of signals; clones share it.
pub type Signals = Arc<mainstay_signals::Signals>;

pub async fn build(startup: Startup<'_>) -> Result<Signals, BuildError> {
    let state = startup.state.path();
    let state = std::fs::canonicalize(state).unwrap_or_else(|_| state.to_owned());
    let key = mainstay_cells::digest(state.as_os_str().as_bytes());
    let signals = Arc::new(mainstay_signals::Signals::new(&format!("{key:016x}")));
    // Not waited for: the daemon starts no later for it.
    let sweeping = Arc::clone(&signals);
    tokio::task::spawn_blocking(move || sweeping.sweep());
    Ok(signals)
}

pub fn reload(_: &Signals, _: &Config, _: &Config) {}

/// Waits until the tracing instances are removed; their streams have ended with the calls.
pub async fn stop(signals: &Signals) {
    let signals = Arc::clone(signals);
    // The wait is bounded; a panic in it leaves the instances to the next start.
    let _ = tokio::task::spawn_blocking(move || signals.stop()).await;
}
