//! The lifecycle engine: reboot, shutdown and reset of the node, one sequence at a time.

mod events;
mod plans;
pub mod reset;
mod stop;
mod switch;

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use mainstay_error_chain::chain;
use mainstay_lifecycle::platform::{
    BootId, Commands, Container, Host, Metal, NotInit, Platform, PlatformName,
};
use mainstay_lifecycle::{ActorId, Interrupted, OpenError, Request, Sequences, StartError};
use serde::{Deserialize, Serialize};
use tracing::{error, info};

use super::cells::Cells;
use super::journal::Journal;
use super::schedule::Schedule;
use super::services::Services;
use super::upgrade::Upgrade;
use super::{BuildError, Startup};
use crate::config::{Config, Span};
use crate::handover::{self, Process};
use events::SequenceEvents;
pub use plans::{REBOOT, RESET, SHUTDOWN};
pub use reset::{Label, ResetOptions};
pub use stop::Stoppable;

pub const RESTART_KEYS: &[&str] = &[
    "platform",
    "lifecycle.reboot_command",
    "lifecycle.shutdown_command",
];

/// `[lifecycle]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LifecycleSection {
    /// Empty for the init system's, or the kernel's.
    pub reboot_command: Vec<String>,
    pub shutdown_command: Vec<String>,
    /// Bounds the stop of everything that runs on the node.
    pub stop_everything_timeout: Span,
}

impl Default for LifecycleSection {
    fn default() -> Self {
        Self {
            reboot_command: Vec::new(),
            shutdown_command: Vec::new(),
            stop_everything_timeout: Span(Duration::from_secs(120)),
        }
    }
}

/// The arguments of a sequence, in its record.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Arguments {
    /// The boot in which it was asked for.
    boot: BootId,
    #[serde(default)]
    reset: Option<ResetOptions>,
    /// Of an upgrade or a rollback: whether the switch waits for the next start.
    #[serde(default)]
    staged: bool,
}

#[derive(Debug)]
pub struct Lifecycle {
    /// Also for sequences of other engines.
    pub sequences: Sequences,
    pub platform: Arc<dyn Platform>,
    /// Everything that runs on the node, stopped in parallel.
    stoppables: Vec<Arc<dyn Stoppable>>,
    cells: Cells,
    services: Services,
    upgrade: Upgrade,
    process: Process,
    state: PathBuf,
    stop_timeout: Mutex<Duration>,
    interrupted: Mutex<Option<Interrupted>>,
}

#[derive(Debug, thiserror::Error)]
enum LifecycleError {
    #[error(transparent)]
    Open(#[from] OpenError),
    #[error(transparent)]
    Platform(#[from] NotInit),
}

pub async fn build(
    startup: Startup<'_>,
    journal: &Journal,
    cells: &Cells,
    services: &Services,
    schedule: &Schedule,
    upgrade: &Upgrade,
) -> Result<Lifecycle, BuildError> {
    let platform = platform(startup).map_err(LifecycleError::from)?;
    info!(platform = %platform.name(), "platform in force");
    handover::log_arrival();
    let state = startup.state.path().to_owned();
    let events = SequenceEvents::new(journal.events.clone(), services.clone(), schedule.clone());
    let directory = state.join(reset::DIRECTORY);
    let opened = tokio::task::spawn_blocking(move || Sequences::open(&directory, events)).await?;
    let opened = opened.map_err(LifecycleError::from)?;
    if let Some(why) = &opened.unreadable {
        error!(
            error = chain(why),
            "cannot read the sequence that ran last; it is not resumed"
        );
    }
    Ok(Lifecycle {
        sequences: opened.sequences,
        platform,
        stoppables: vec![
            Arc::new(stop::AllServices::new(services.clone())),
            Arc::new(stop::AllCells::new(cells.clone(), schedule.clone())),
        ],
        cells: cells.clone(),
        services: services.clone(),
        upgrade: upgrade.clone(),
        process: startup.process.clone(),
        state,
        stop_timeout: Mutex::new(section(startup.config).stop_everything_timeout.0),
        interrupted: Mutex::new(opened.interrupted),
    })
}

fn section(config: &Config) -> &LifecycleSection {
    &config.settings.lifecycle
}

fn platform(startup: Startup<'_>) -> Result<Arc<dyn Platform>, NotInit> {
    let settings = &startup.config.settings;
    let name = settings.platform.unwrap_or_else(PlatformName::detect);
    Ok(match name {
        PlatformName::Container => {
            let process = Arc::new(startup.process.clone());
            Arc::new(Container::new(process, settings.stop_timeout.0))
        }
        PlatformName::Host => Arc::new(Host::new(Commands {
            reboot: settings.lifecycle.reboot_command.clone(),
            shut_down: settings.lifecycle.shutdown_command.clone(),
        })),
        PlatformName::Metal => Arc::new(Metal::new()?),
    })
}

pub fn reload(lifecycle: &Lifecycle, _: &Config, new: &Config) {
    let timeout = section(new).stop_everything_timeout.0;
    *lifecycle.stop_timeout() = timeout;
}

/// Leaves a sequence that runs to the next daemon.
pub async fn stop(lifecycle: &Lifecycle) {
    lifecycle.sequences.close();
}

impl Lifecycle {
    fn stop_timeout(&self) -> std::sync::MutexGuard<'_, Duration> {
        self.stop_timeout
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a reboot of the node.
    pub async fn reboot(&self, who: String, forced: bool) -> Result<ActorId, StartError> {
        self.start(REBOOT, who, forced, None).await
    }

    /// Starts a shutdown of the node.
    pub async fn shut_down(&self, who: String, forced: bool) -> Result<ActorId, StartError> {
        self.start(SHUTDOWN, who, forced, None).await
    }

    /// Starts a reset of the node.
    pub async fn reset(&self, who: String, options: ResetOptions) -> Result<ActorId, StartError> {
        self.start(RESET, who, false, Some(options)).await
    }

    async fn start(
        &self,
        sequence: &str,
        requested_by: String,
        forced: bool,
        reset: Option<ResetOptions>,
    ) -> Result<ActorId, StartError> {
        let arguments = Arguments {
            boot: BootId::current(),
            reset,
            staged: false,
        };
        let request = Request {
            sequence: sequence.to_owned(),
            requested_by,
            forced,
            arguments: serde_json::to_value(&arguments).unwrap_or_default(),
        };
        let plan = |actor: &ActorId| self.plan(sequence, forced, &arguments, actor);
        self.sequences
            .start(request, |actor| plan(actor).unwrap_or_default())
            .await
    }

    /// Continues the sequence that ran when the last daemon ended. Called once the node serves.
    pub async fn resume(&self) {
        let interrupted = self
            .interrupted
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let Some(interrupted) = interrupted else {
            return;
        };
        let record = &interrupted.record;
        let (sequence, actor) = (record.sequence.clone(), record.actor.clone());
        info!(sequence, %actor, "resuming the sequence that ran when the last daemon ended");
        let arguments = serde_json::from_value(record.arguments.clone());
        let plan = match &arguments {
            Ok(arguments) => self.plan(&sequence, record.forced, arguments, &actor),
            Err(_) => None,
        };
        match plan {
            Some(plan) => self.sequences.resume(interrupted, plan).await,
            None => {
                let reason = "this version of mainstay does not know it";
                self.sequences.fail(interrupted, reason).await;
            }
        }
    }
}
