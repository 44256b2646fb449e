//! Changes of the node's configuration while it runs: a file sent over the API, a reload of the
//! file, and the trial of a configuration that ends by itself.
//!
//! One change at a time. Everything is read and checked before anything is changed; the file is
//! replaced before its contents take effect, so that a crash leaves the old configuration or the
//! new one. Nothing here knows what a section means: engines do, in their `reload`.

mod apply;
mod difference;
mod error;
mod file;
mod lock_out;
mod plan;
mod trial;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use mainstay_api::machine::service_state_event::Action;
use mainstay_error_chain::chain;
use tokio::sync::Mutex;
use tracing::{error, info, warn};

pub use apply::{Change, Effect, Mode, apply};
pub use error::ChangeError;
pub use trial::Trials;

use crate::config::{Config, DEFAULT_FILE, Overrides};
use crate::node::Node;
use crate::service_manager::{NotifyState, notify, notify_change};
use trial::Trial;

/// The state of changes, besides the configuration in force.
#[derive(Debug)]
pub struct Changes {
    overrides: Overrides,
    /// Held while a change is made.
    turn: Arc<Mutex<Option<Trial>>>,
    pub trials: Trials,
}

impl Changes {
    pub fn new(overrides: Overrides) -> Self {
        Self {
            overrides,
            turn: Arc::default(),
            trials: Trials::default(),
        }
    }
}

/// Returns the file that a change writes.
pub fn target(config: &Config) -> PathBuf {
    let file = config.file.clone();
    file.unwrap_or_else(|| Path::new(DEFAULT_FILE).to_owned())
}

/// Reads the file again and applies what can change while running. A file that is not valid
/// changes nothing; one that is ends a trial.
pub async fn reload(node: Arc<Node>) {
    let mut turn = node.changes.turn.lock().await;
    notify_change(NotifyState::Reloading);
    let overrides = node.changes.overrides.clone();
    let loaded = tokio::task::spawn_blocking(move || Config::load(&overrides)).await;
    match loaded {
        Ok(Ok(new)) => {
            trial::end(&node, &mut turn);
            node.config.stage(None);
            put_in_force(&node, new, "configuration reloaded".to_owned()).await;
        }
        Ok(Err(why)) => error!(
            error = chain(&why),
            "cannot reload the configuration; the previous one stays in force"
        ),
        Err(why) => error!(error = chain(&why), "cannot reload the configuration"),
    }
    notify(&[NotifyState::Ready]);
}

/// Applies a configuration to the engines. Cannot fail: the values are valid.
async fn put_in_force(node: &Arc<Node>, new: Config, message: String) {
    let node = Arc::clone(node);
    // Engines and the event store may write to disk.
    let applied = tokio::task::spawn_blocking(move || {
        let old = node.config.current();
        for key in node.config.restart_needed(&new) {
            warn!(key, "configuration key changed; takes effect on restart");
        }
        node.engines.reload(&old, &new);
        node.config.replace(new);
        info!("{message}");
        let events = &node.engines.journal.service_events;
        events.daemon(Action::Running, &message);
    });
    if let Err(why) = applied.await {
        error!(error = chain(&why), "cannot apply the configuration");
    }
}
