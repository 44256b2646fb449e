//! A configuration on trial: in force, but not in the file, until it is confirmed or ends.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::warn;

use super::put_in_force;
use crate::config::Config;
use crate::node::Node;

/// A running trial. Dropping it ends the wait for its end, nothing else.
#[derive(Debug)]
pub(super) struct Trial {
    /// The configuration that returns.
    before: Config,
    _wait: DropGuard,
}

/// The end of the running trial, for readers.
#[derive(Debug, Default)]
pub struct Trials {
    ends: Mutex<Option<Timestamp>>,
}

impl Trials {
    /// Returns when the running trial ends; `None` if there is none.
    pub fn ends(&self) -> Option<Timestamp> {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_end(&self, end: Option<Timestamp>) {
        *self.ends.lock().unwrap_or_else(PoisonError::into_inner) = end;
    }
}

/// Ends the trial, whichever configuration follows.
pub(super) fn end(node: &Node, turn: &mut Option<Trial>) {
    node.changes.trials.set_end(None);
    *turn = None;
}

/// Puts a configuration in force that ends after `timeout`. A trial that runs is replaced: what
/// returns in the end is the configuration before both.
pub(super) async fn begin(
    node: &Arc<Node>,
    turn: &mut Option<Trial>,
    new: Config,
    timeout: Duration,
    summary: &str,
) {
    let before = match turn.take() {
        Some(trial) => trial.before,
        None => Config::clone(&node.config.current()),
    };
    let shown = humantime::format_duration(timeout);
    let message = format!("configuration on trial for {shown}: {summary}");
    put_in_force(node, new, message).await;
    node.changes
        .trials
        .set_end(Timestamp::now().checked_add(timeout).ok());
    let wait = CancellationToken::new();
    tokio::spawn(revert_after(timeout, Arc::clone(node), wait.clone()));
    *turn = Some(Trial {
        before,
        _wait: wait.drop_guard(),
    });
}

async fn revert_after(timeout: Duration, node: Arc<Node>, wait: CancellationToken) {
    let ended = tokio::time::timeout(timeout, wait.cancelled()).await;
    if ended.is_ok() {
        return;
    }
    let mut turn = node.changes.turn.lock().await;
    // Confirmed or replaced while this waited for its turn.
    if wait.is_cancelled() {
        return;
    }
    let Some(trial) = turn.take() else { return };
    let shown = humantime::format_duration(timeout);
    warn!(timeout = %shown, "configuration was not confirmed");
    let message =
        format!("configuration was not confirmed within {shown}; the previous one is in force");
    put_in_force(&node, trial.before, message).await;
    end(&node, &mut turn);
}
