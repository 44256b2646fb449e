//! Decides what happens next to every service. Pure: no clock, no I/O, no waiting.
//!
//! The driver reports what has happened and gets back a list of [`Effect`]s. A service is launched
//! only when everything it depends on is up, and is terminated only when nothing that depends on it
//! still runs; it never has two processes.

mod effect;
mod order;
mod state;
#[cfg(test)]
mod tests;
mod unit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

pub use effect::{Change, Effect};
pub use state::{Health, State};
use unit::{Process, Unit};

use crate::{Definition, ServiceName};

/// The end of a run, as far as it matters for what follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// It exited with code 0.
    pub succeeded: bool,
    /// For people: `exited with code 1`, or why it could not be started.
    pub reason: String,
}

/// A service as others see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    pub state: State,
    pub message: String,
    pub health: Health,
    /// As the API counts it: finished, or running and, with a health check, healthy.
    pub up: bool,
    pub wanted: bool,
    /// Nothing changes any more unless something happens from outside.
    pub settled: bool,
    /// The number of the latest run.
    pub run: u64,
    pub has_process: bool,
}

/// The state of a service that an earlier supervisor left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// Its process runs.
    Running,
    /// It ended while nobody supervised it.
    Ended(Ended),
    /// It was stopped by request.
    Stopped,
}

/// All services.
#[derive(Debug, Default)]
pub struct Core {
    units: BTreeMap<ServiceName, Unit>,
    /// For each service those that name it in `after` or `requires`.
    dependents: BTreeMap<ServiceName, BTreeSet<ServiceName>>,
    /// Services whose process is to end: for reasons of their own, or because something that they
    /// require, directly or not, is going down.
    going_down: BTreeSet<ServiceName>,
    next_timer: u64,
    effects: Vec<Effect>,
    /// Services to look at again.
    pending: VecDeque<ServiceName>,
}

impl Core {
    /// Sets the definitions, which must have passed [`crate::graph::check`].
    ///
    /// New services that are enabled are started, unless an earlier supervisor left them in the
    /// state that was `found`. Removed ones are stopped and forgotten. Changed ones are restarted with
    /// their new definition, unless only their supervision has changed.
    pub fn define(
        &mut self,
        definitions: BTreeMap<ServiceName, Arc<Definition>>,
        mut found: BTreeMap<ServiceName, Found>,
        now: Duration,
    ) -> Vec<Effect> {
        for (name, unit) in &mut self.units {
            unit.removed = !definitions.contains_key(name);
        }
        let mut enabled = Vec::new();
        let mut adopted = Vec::new();
        let mut checked_otherwise = Vec::new();
        for (name, definition) in definitions {
            match self.units.get_mut(&name) {
                None => {
                    match found.remove(&name) {
                        Some(Found::Stopped) => adopted.push((name.clone(), Found::Stopped)),
                        found => {
                            if definition.enabled || found.is_some() {
                                enabled.push(name.clone());
                            }
                            adopted.extend(found.map(|found| (name.clone(), found)));
                        }
                    }
                    self.units.insert(name, Unit::new(definition));
                }
                Some(unit) if unit.definition == definition => unit.replacement = None,
                Some(unit)
                    if unit.replacement.is_none()
                        && unit.definition.has_same_process(&definition) =>
                {
                    if unit.wanted {
                        enabled.extend(definition.requires.iter().cloned());
                    }
                    if definition.enabled && !unit.definition.enabled {
                        enabled.push(name.clone());
                    }
                    if definition.health != unit.definition.health {
                        checked_otherwise.push(name);
                    }
                    unit.definition = definition;
                }
                Some(unit) => {
                    if unit.wanted {
                        enabled.extend(definition.requires.iter().cloned());
                    }
                    if definition.enabled && !unit.definition.enabled {
                        enabled.push(name);
                    }
                    unit.replacement = Some(definition);
                }
            }
        }
        self.rebuild_dependents();
        self.want(enabled);
        for (name, found) in adopted {
            self.adopt(&name, found, now);
        }
        for name in checked_otherwise {
            self.check_otherwise(&name);
        }
        self.pending = self.units.keys().cloned().collect();
        self.settle()
    }

    /// Begins to check the health of a running service by its changed definition.
    fn check_otherwise(&mut self, service: &ServiceName) {
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        unit.health_timer = None;
        if matches!(unit.process, Process::Running { .. }) {
            self.set_health(service, Health::Unknown);
            self.schedule_health(service, |check| check.delay);
        }
        self.touch(service);
    }

    /// Takes over a service from an earlier supervisor.
    fn adopt(&mut self, service: &ServiceName, found: Found, now: Duration) {
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        match found {
            Found::Running => {
                unit.run += 1;
                self.run_begun(service, now, "adopted");
            }
            Found::Ended(ended) => {
                unit.process = Process::Running { since: now };
                self.process_ended(service, &ended, now);
            }
            Found::Stopped if unit.wanted => {
                // Something that is to be up requires it.
            }
            Found::Stopped => self.set_state(service, State::Finished, "stopped".to_owned()),
        }
    }

    /// Wants a service to be up, and those it requires.
    pub fn start(&mut self, service: &ServiceName) -> Vec<Effect> {
        self.want(vec![service.clone()]);
        self.settle()
    }

    /// Wants a service to be down; those that require it go down first and wait.
    pub fn stop(&mut self, service: &ServiceName) -> Vec<Effect> {
        self.unwant(service);
        self.settle()
    }

    /// Wants all services to be down.
    pub fn stop_all(&mut self) -> Vec<Effect> {
        let all: Vec<_> = self.units.keys().cloned().collect();
        for service in &all {
            self.unwant(service);
        }
        self.settle()
    }

    /// Wants all enabled services to be up, and those they require.
    pub fn start_enabled(&mut self) -> Vec<Effect> {
        let units = self.units.iter();
        let enabled = units.filter(|(_, unit)| unit.definition.enabled);
        let enabled = enabled.map(|(name, _)| name.clone()).collect();
        self.want(enabled);
        self.settle()
    }

    fn unwant(&mut self, service: &ServiceName) {
        if let Some(unit) = self.units.get_mut(service) {
            unit.wanted = false;
            unit.restarting = false;
            unit.back_off_timer = None;
            if !unit.has_process() && !matches!(unit.state, State::Finished | State::Failed) {
                self.set_state(service, State::Finished, "stopped".to_owned());
            }
        }
        self.touch(service);
    }

    /// Ends the present run, if there is one, and starts the next.
    pub fn restart(&mut self, service: &ServiceName) -> Vec<Effect> {
        self.want(vec![service.clone()]);
        if let Some(unit) = self.units.get_mut(service) {
            unit.restarting = unit.has_process();
        }
        self.settle()
    }

    /// Reports that a run has a process.
    pub fn launched(&mut self, service: &ServiceName, run: u64, now: Duration) -> Vec<Effect> {
        if self.is_current(service, run, |process| process == Process::Launching) {
            self.run_begun(service, now, "started");
        }
        self.settle()
    }

    /// Reports the end of a run, or that it could not be started.
    pub fn exited(
        &mut self,
        service: &ServiceName,
        run: u64,
        ended: &Ended,
        now: Duration,
    ) -> Vec<Effect> {
        if self.is_current(service, run, |process| process != Process::None) {
            self.process_ended(service, ended, now);
        }
        self.settle()
    }

    /// Reports the result of a health check.
    pub fn health_checked(
        &mut self,
        service: &ServiceName,
        run: u64,
        result: Result<(), String>,
    ) -> Vec<Effect> {
        let running = |process| matches!(process, Process::Running { .. });
        if self.is_current(service, run, running) {
            let health = match result {
                Ok(()) => Health::Healthy,
                Err(reason) => Health::Unhealthy { reason },
            };
            self.set_health(service, health);
            self.schedule_health(service, |check| check.period);
        }
        self.settle()
    }

    /// Reports that a timer has fired.
    pub fn timer(&mut self, service: &ServiceName, timer: u64) -> Vec<Effect> {
        if let Some(unit) = self.units.get_mut(service) {
            if unit.back_off_timer == Some(timer) {
                unit.back_off_timer = None;
                self.touch(service);
            } else if unit.health_timer == Some(timer) {
                unit.health_timer = None;
                let run = unit.run;
                self.effects.push(Effect::CheckHealth {
                    service: service.clone(),
                    run,
                });
            }
        }
        self.settle()
    }

    pub fn definition(&self, service: &ServiceName) -> Option<&Arc<Definition>> {
        self.units.get(service).map(|unit| &unit.definition)
    }

    pub fn status(&self, service: &ServiceName) -> Option<Status> {
        self.units.get(service).map(status)
    }

    /// Every service with its status, in the order of names.
    pub fn list(&self) -> impl Iterator<Item = (&ServiceName, Status)> {
        self.units.iter().map(|(name, unit)| (name, status(unit)))
    }

    fn is_current(
        &self,
        service: &ServiceName,
        run: u64,
        expected: impl Fn(Process) -> bool,
    ) -> bool {
        let unit = self.units.get(service);
        unit.is_some_and(|unit| unit.run == run && expected(unit.process))
    }

    /// Wants these services and, transitively, what they require.
    fn want(&mut self, mut services: Vec<ServiceName>) {
        let mut seen = BTreeSet::new();
        let requested: BTreeSet<_> = services.iter().cloned().collect();
        while let Some(service) = services.pop() {
            let Some(unit) = self.units.get_mut(&service) else {
                continue;
            };
            if !seen.insert(service.clone()) {
                continue;
            }
            let again = requested.contains(&service) || !unit.wanted;
            unit.wanted = true;
            if again && !unit.has_process() {
                unit.done = false;
                unit.failures = 0;
                unit.back_off_timer = None;
            }
            let definition = unit.replacement.as_ref().unwrap_or(&unit.definition);
            services.extend(definition.requires.iter().cloned());
            self.pending.push_back(service);
        }
    }

    fn run_begun(&mut self, service: &ServiceName, now: Duration, message: &str) {
        if let Some(unit) = self.units.get_mut(service) {
            unit.process = Process::Running { since: now };
            unit.health = Health::Unknown;
        }
        self.set_state(service, State::Running, message.to_owned());
        self.schedule_health(service, |check| check.delay);
        self.touch(service);
    }

    fn process_ended(&mut self, service: &ServiceName, ended: &Ended, now: Duration) {
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        let requested = unit.process == Process::Terminating || unit.is_going_down();
        let ran_for = match unit.process {
            Process::Running { since } => now.saturating_sub(since),
            _ => Duration::ZERO,
        };
        unit.process = Process::None;
        unit.restarting = false;
        unit.health = Health::Unknown;
        unit.health_timer = None;
        let (state, message) = if requested {
            unit.failures = 0;
            (State::Finished, format!("stopped: {}", ended.reason))
        } else if unit.restarts_after(ended.succeeded) {
            let back_off = &unit.definition.back_off;
            if ran_for >= back_off.reset_after {
                unit.failures = 0;
            }
            unit.failures = unit.failures.saturating_add(1);
            let after = back_off.delay(unit.failures);
            self.next_timer += 1;
            unit.back_off_timer = Some(self.next_timer);
            self.effects.push(Effect::SetTimer {
                service: service.clone(),
                timer: self.next_timer,
                after,
            });
            let message = format!(
                "{}; restart in {after:?} (attempt {})",
                ended.reason,
                unit.failures.saturating_add(1)
            );
            (State::Waiting, message)
        } else {
            unit.done = true;
            let state = match ended.succeeded {
                true => State::Finished,
                false => State::Failed,
            };
            (state, ended.reason.clone())
        };
        self.set_state(service, state, message);
        self.touch(service);
    }

    fn schedule_health(
        &mut self,
        service: &ServiceName,
        after: impl Fn(&crate::HealthCheck) -> Duration,
    ) {
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        if let Some(check) = &unit.definition.health {
            self.next_timer += 1;
            unit.health_timer = Some(self.next_timer);
            self.effects.push(Effect::SetTimer {
                service: service.clone(),
                timer: self.next_timer,
                after: after(check),
            });
        }
    }

    /// Looks again at a service and at those whose next step may depend on it: the ones that wait to
    /// start after it, and the ones that wait to stop after it.
    fn touch(&mut self, service: &ServiceName) {
        self.pending.push_back(service.clone());
        if let Some(dependents) = self.dependents.get(service) {
            self.pending.extend(dependents.iter().cloned());
        }
        let waiting = self.going_down.iter().filter(|name| {
            let unit = self.units.get(*name);
            unit.is_some_and(|unit| matches!(unit.process, Process::Running { .. }))
        });
        let waiting: Vec<_> = waiting.cloned().collect();
        self.pending.extend(waiting);
    }

    /// Takes every step that is possible now, and returns what is to be done.
    fn settle(&mut self) -> Vec<Effect> {
        self.refresh_going_down();
        while let Some(service) = self.pending.pop_front() {
            self.step(&service);
        }
        std::mem::take(&mut self.effects)
    }

    fn step(&mut self, service: &ServiceName) {
        let Some(unit) = self.units.get(service) else {
            return;
        };
        match unit.process {
            // Its result comes first.
            Process::Launching | Process::Terminating => {}
            Process::Running { .. } => {
                if self.must_go_down(service) {
                    self.take_down(service);
                } else if unit.state == State::Stopping {
                    // Wanted again before its turn to be terminated came.
                    self.set_state(service, State::Running, "kept running".to_owned());
                    self.touch(service);
                }
            }
            Process::None => self.step_without_process(service),
        }
    }

    fn step_without_process(&mut self, service: &ServiceName) {
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        if unit.removed {
            self.units.remove(service);
            self.rebuild_dependents();
            self.refresh_going_down();
            self.effects.push(Effect::Removed {
                service: service.clone(),
            });
            return;
        }
        if let Some(definition) = unit.replacement.take() {
            unit.definition = definition;
            unit.done = false;
            unit.failures = 0;
            unit.back_off_timer = None;
            self.rebuild_dependents();
            self.refresh_going_down();
            self.touch(service);
        }
        let Some(unit) = self.units.get(service) else {
            return;
        };
        if !unit.wanted || unit.done || unit.back_off_timer.is_some() {
            return;
        }
        if let Some(reason) = self.blocked_by(service) {
            self.set_state(service, State::Waiting, reason);
            return;
        }
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        unit.run += 1;
        unit.process = Process::Launching;
        unit.health = Health::Unknown;
        let run = unit.run;
        self.set_state(service, State::Starting, "starting".to_owned());
        self.effects.push(Effect::Launch {
            service: service.clone(),
            run,
        });
    }

    fn set_state(&mut self, service: &ServiceName, state: State, message: String) {
        if let Some(unit) = self.units.get_mut(service)
            && (unit.state != state || unit.message != message)
        {
            unit.state = state;
            unit.message = message;
            self.publish(service);
        }
    }

    fn set_health(&mut self, service: &ServiceName, health: Health) {
        if let Some(unit) = self.units.get_mut(service)
            && unit.health != health
        {
            match &health {
                Health::Healthy => unit.message = "health check passed".to_owned(),
                Health::Unhealthy { reason } => {
                    unit.message = format!("health check failed: {reason}");
                }
                Health::Unknown => {}
            }
            unit.health = health;
            self.publish(service);
            self.touch(service);
        }
    }

    fn publish(&mut self, service: &ServiceName) {
        if let Some(unit) = self.units.get(service) {
            self.effects.push(Effect::Publish(Change {
                service: service.clone(),
                state: unit.state,
                message: unit.message.clone(),
                health: unit.health.clone(),
            }));
        }
    }
}

fn status(unit: &Unit) -> Status {
    Status {
        state: unit.state,
        message: unit.message.clone(),
        health: unit.health.clone(),
        up: unit.is_up(),
        wanted: unit.wanted,
        settled: unit.is_settled(),
        run: unit.run,
        has_process: unit.has_process(),
    }
}
