//! A change as a transaction: check, write, put in force.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::OwnedMutexGuard;

use super::plan::Plan;
use super::trial::{self, Trial};
use super::{ChangeError, put_in_force};
use crate::config::{Config, MAX_FILE_BYTES};
use crate::node::Node;
use crate::requester::Requester;

/// The time after which a trial ends by default, and the bounds of another one.
const DEFAULT_TRIAL: Duration = Duration::from_secs(60);
const MIN_TRIAL: Duration = Duration::from_secs(1);
const MAX_TRIAL: Duration = Duration::from_secs(24 * 60 * 60);

/// A configuration to apply.
#[derive(Debug)]
pub struct Change {
    /// The text of the file.
    pub data: Vec<u8>,
    pub mode: Mode,
    /// Check everything and change nothing.
    pub dry_run: bool,
    pub trial_timeout: Option<Duration>,
    /// The contents of the file that the change was made from.
    pub expected: Option<Vec<u8>>,
    pub by: Requester,
}

/// The way in which a configuration is to take effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Restart,
    Auto,
    WithoutRestart,
    Staged,
    Trial,
}

/// The way in which a configuration took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Everything at once.
    Now,
    /// Keys that need no restart at once, the rest on restart.
    NowAndOnRestart,
    OnRestart,
    /// Everything with the reboot that has begun.
    OnReboot,
    OnTrial,
}

#[derive(Debug)]
pub struct Applied {
    pub effect: Effect,
    pub warnings: Vec<String>,
    pub details: String,
}

impl Change {
    /// Checks what can be checked without the node.
    fn check(&self) -> Result<(), ChangeError> {
        let max_bytes = usize::try_from(MAX_FILE_BYTES).unwrap_or(usize::MAX);
        let bytes = self.data.len();
        if bytes > max_bytes {
            return Err(ChangeError::TooLarge { bytes, max_bytes });
        }
        if self.data.is_empty() {
            return Err(ChangeError::Empty);
        }
        match (self.mode, self.trial_timeout) {
            (Mode::Trial, Some(timeout)) if !(MIN_TRIAL..=MAX_TRIAL).contains(&timeout) => {
                Err(ChangeError::TrialTimeout {
                    timeout,
                    max: MAX_TRIAL,
                })
            }
            (Mode::Trial, _) | (_, None) => Ok(()),
            _ => Err(ChangeError::TimeoutWithoutTrial),
        }
    }

    /// Decides how the plan takes effect.
    fn effect(&self, plan: &Plan) -> Result<Effect, ChangeError> {
        let needs_restart = || ChangeError::NeedsRestart {
            keys: plan.on_restart.clone(),
        };
        match (self.mode, plan.on_restart.is_empty()) {
            (Mode::Restart, _) => Ok(Effect::OnReboot),
            (Mode::Staged, _) => Ok(Effect::OnRestart),
            (Mode::Auto | Mode::WithoutRestart, true) => Ok(Effect::Now),
            // A restart stops what runs on the node: only who asks for it gets it.
            (Mode::Auto, false) => Ok(Effect::NowAndOnRestart),
            (Mode::Trial, true) => Ok(Effect::OnTrial),
            (Mode::WithoutRestart | Mode::Trial, false) => Err(needs_restart()),
        }
    }
}

/// Applies a configuration, or says what that would change. Once begun, the change is completed
/// also if the caller disconnects.
pub async fn apply(node: &Arc<Node>, change: Change) -> Result<Applied, ChangeError> {
    change.check()?;
    let turn = Arc::clone(&node.changes.turn).try_lock_owned();
    let turn = turn.map_err(|_| ChangeError::Busy)?;
    let made = tokio::spawn(make(Arc::clone(node), change, turn)).await;
    made.unwrap_or(Err(ChangeError::Panicked))
}

async fn make(
    node: Arc<Node>,
    change: Change,
    mut turn: OwnedMutexGuard<Option<Trial>>,
) -> Result<Applied, ChangeError> {
    let (change, plan, effect, difference) = planned(Arc::clone(&node), change).await?;
    let summary = plan.summary();
    let done = |effect, warnings, details| Applied {
        effect,
        warnings,
        details,
    };
    if let Some(difference) = difference {
        let unchanged = "the file is unchanged\n".to_owned();
        let difference = Some(difference).filter(|it| !it.is_empty());
        let details = format!("dry run, {summary}\n\n{}", difference.unwrap_or(unchanged));
        return Ok(done(effect, plan.warnings, details));
    }
    let warnings = plan.warnings.clone();
    if effect == Effect::OnTrial {
        let timeout = change.trial_timeout.unwrap_or(DEFAULT_TRIAL);
        trial::begin(&node, &mut turn, plan.new, timeout, &summary).await;
        let shown = humantime::format_duration(timeout);
        let details = format!(
            "on trial for {shown}, {summary}; apply the same configuration in a permanent mode to \
             keep it"
        );
        return Ok(done(effect, warnings, details));
    }
    let new = written(Arc::clone(&node), plan).await?;
    if effect == Effect::OnRestart {
        let details = format!("written for the next start, {summary}");
        tracing::info!("configuration {details}");
        node.config.stage(Some(new));
        return Ok(done(effect, warnings, details));
    }
    trial::end(&node, &mut turn);
    if effect == Effect::OnReboot {
        tracing::info!("configuration written for a reboot, {summary}");
        node.config.stage(Some(new));
        let who = change.by.who.to_string();
        let actor = node.engines.lifecycle.reboot(who, false).await?;
        let details = format!("written, {summary}; rebooting as {actor}");
        return Ok(done(effect, warnings, details));
    }
    node.config.stage(None);
    put_in_force(&node, new, format!("configuration applied, {summary}")).await;
    Ok(done(effect, warnings, format!("applied, {summary}")))
}

type Planned = (Change, Plan, Effect, Option<String>);

/// Reads and checks everything, and finds the difference for a dry run.
async fn planned(node: Arc<Node>, change: Change) -> Result<Planned, ChangeError> {
    let work = move || {
        let plan = Plan::new(&node.config, &node.changes.overrides, &change)?;
        let effect = change.effect(&plan)?;
        let difference = change.dry_run.then(|| plan.difference());
        Ok((change, plan, effect, difference))
    };
    let planned = tokio::task::spawn_blocking(work).await;
    planned.unwrap_or(Err(ChangeError::Panicked))
}

async fn written(node: Arc<Node>, plan: Plan) -> Result<Config, ChangeError> {
    let work = move || {
        plan.file.replace(plan.text.as_bytes(), &node.state)?;
        Ok(plan.new)
    };
    let written = tokio::task::spawn_blocking(work).await;
    written.unwrap_or(Err(ChangeError::Panicked))
}
