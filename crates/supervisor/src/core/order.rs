//! The order of services: who waits for whom, to start and to stop.

use std::collections::BTreeSet;

use super::state::State;
use super::unit::{Process, Unit};
use super::{Core, Effect};
use crate::ServiceName;

impl Core {
    pub(super) fn rebuild_dependents(&mut self) {
        self.dependents.clear();
        for (name, unit) in &self.units {
            let replacement = unit.replacement.iter();
            for definition in replacement.chain([&unit.definition]) {
                for dependency in definition.dependencies() {
                    let dependents = self.dependents.entry(dependency.clone()).or_default();
                    dependents.insert(name.clone());
                }
            }
        }
    }

    /// The reason why a service cannot be started yet.
    pub(super) fn blocked_by(&self, service: &ServiceName) -> Option<String> {
        let unit = self.units.get(service)?;
        let unmet = |name: &&ServiceName| {
            let required = unit.definition.requires.contains(*name);
            let dependency = self.units.get(*name);
            match dependency {
                Some(dependency) if required => !dependency.is_up() || self.must_go_down(name),
                Some(dependency) => !dependency.is_settled(),
                None => required,
            }
        };
        let unmet: BTreeSet<_> = unit.definition.dependencies().filter(unmet).collect();
        if unmet.is_empty() {
            return None;
        }
        let described = unmet.into_iter().map(|name| match self.units.get(name) {
            Some(unit) if unit.state == State::Running && !unit.definition.oneshot => {
                format!("{name} (not healthy)")
            }
            Some(unit) => format!("{name} ({})", unit.state.as_str()),
            None => format!("{name} (not defined)"),
        });
        let described: Vec<_> = described.collect();
        Some(format!("waiting for {}", described.join(", ")))
    }

    /// Finds out anew which services are going down, and looks again at those for which that has
    /// changed.
    pub(super) fn refresh_going_down(&mut self) {
        let units = self.units.iter();
        let mut ahead: Vec<&ServiceName> = units
            .filter(|(_, unit)| unit.is_going_down())
            .map(|(name, _)| name)
            .collect();
        let mut going_down = BTreeSet::new();
        while let Some(name) = ahead.pop() {
            if !going_down.insert(name.clone()) {
                continue;
            }
            let dependents = self.dependents.get(name).into_iter().flatten();
            ahead.extend(dependents.filter(|dependent| {
                let unit = self.units.get(*dependent);
                // One that is done, such as a oneshot, needs its requirements no more.
                unit.is_some_and(|unit| !unit.done && unit.definition.requires.contains(name))
            }));
        }
        let changed = going_down.symmetric_difference(&self.going_down);
        self.pending.extend(changed.cloned());
        self.going_down = going_down;
    }

    pub(super) fn must_go_down(&self, service: &ServiceName) -> bool {
        self.going_down.contains(service)
    }

    /// Everything that depends on a service, directly or not.
    fn all_dependents<'a>(&'a self, service: &'a ServiceName) -> BTreeSet<&'a ServiceName> {
        let mut found = BTreeSet::new();
        let mut ahead = vec![service];
        while let Some(name) = ahead.pop() {
            let dependents = self.dependents.get(name).into_iter().flatten();
            ahead.extend(dependents.filter(|dependent| found.insert(*dependent)));
        }
        found
    }

    /// Terminates a service, once those that depend on it and are going down too are gone.
    pub(super) fn take_down(&mut self, service: &ServiceName) {
        let before: Vec<ServiceName> = self
            .all_dependents(service)
            .into_iter()
            .filter(|name| {
                let unit = self.units.get(*name);
                unit.is_some_and(Unit::has_process) && self.must_go_down(name)
            })
            .cloned()
            .collect();
        if !before.is_empty() {
            let names: Vec<_> = before.iter().map(ServiceName::as_str).collect();
            let message = format!("waiting for {} to stop", names.join(", "));
            // Each goes down on its own step, and touches this service when it is gone.
            let untold = before.into_iter().filter(|name| {
                let unit = self.units.get(name);
                unit.is_some_and(|unit| unit.state != State::Stopping)
            });
            self.pending.extend(untold);
            self.set_state(service, State::Stopping, message);
            return;
        }
        let Some(unit) = self.units.get_mut(service) else {
            return;
        };
        unit.process = Process::Terminating;
        unit.health_timer = None;
        let run = unit.run;
        self.set_state(service, State::Stopping, "stopping".to_owned());
        self.effects.push(Effect::Terminate {
            service: service.clone(),
            run,
        });
    }
}
