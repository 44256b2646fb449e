//! The core against a world that does what it asks in any order, and against what a person expects
//! of a few services.

use proptest::prelude::*;

use super::*;
use crate::{HealthCheck, Probe, RestartPolicy};

const NOW: Duration = Duration::from_secs(1);

fn name(text: &str) -> ServiceName {
    text.parse().unwrap()
}

fn service(requires: &[&str], after: &[&str]) -> Definition {
    let mut definition = Definition::new(vec!["program".to_owned()]);
    definition.requires = requires.iter().map(|text| name(text)).collect();
    definition.after = after.iter().map(|text| name(text)).collect();
    definition
}

fn with_health(mut definition: Definition) -> Definition {
    let address = "127.0.0.1:1".parse().unwrap();
    definition.health = Some(HealthCheck::new(Probe::Tcp(address)));
    definition
}

fn ended(succeeded: bool) -> Ended {
    Ended {
        succeeded,
        reason: "exited".to_owned(),
    }
}

/// A core and the world that its effects change.
#[derive(Default)]
struct World {
    core: Core,
    definitions: BTreeMap<ServiceName, Arc<Definition>>,
    launching: BTreeMap<ServiceName, u64>,
    running: BTreeMap<ServiceName, u64>,
    terminating: BTreeMap<ServiceName, u64>,
    checking: BTreeMap<ServiceName, u64>,
    timers: Vec<(ServiceName, u64)>,
    published: Vec<Change>,
}

impl World {
    fn new(services: &[(&str, Definition)]) -> Self {
        let mut world = Self::default();
        world.define(services);
        world
    }

    fn define(&mut self, services: &[(&str, Definition)]) {
        let services = services.iter();
        self.definitions = services
            .map(|(text, definition)| (name(text), Arc::new(definition.clone())))
            .collect();
        let effects = self
            .core
            .define(self.definitions.clone(), BTreeMap::new(), NOW);
        self.apply(effects);
    }

    fn has_process(&self, service: &ServiceName) -> bool {
        self.launching.contains_key(service)
            || self.running.contains_key(service)
            || self.terminating.contains_key(service)
    }

    /// Carries effects out, and checks each against what must hold at that moment.
    fn apply(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Launch { service, run } => {
                    assert!(!self.has_process(&service), "{service} has two processes");
                    let definition = self.core.definition(&service).unwrap();
                    for required in &definition.requires {
                        let up = self.core.status(required).is_some_and(|status| status.up);
                        assert!(up, "{service} is launched before {required} is up");
                    }
                    for earlier in &definition.after {
                        let status = self.core.status(earlier);
                        assert!(
                            status.is_none_or(|status| status.settled),
                            "{service} is launched before {earlier} has settled"
                        );
                    }
                    self.launching.insert(service, run);
                }
                Effect::Terminate { service, run } => {
                    assert_eq!(self.running.remove(&service), Some(run));
                    for (dependent, definition) in &self.definitions {
                        assert!(
                            !definition.requires.contains(&service)
                                || !self.has_process(dependent)
                                // Changed meanwhile: it still runs by its old definition.
                                || self.core.definition(dependent) != Some(definition),
                            "{service} is terminated before {dependent}"
                        );
                    }
                    self.terminating.insert(service, run);
                }
                Effect::CheckHealth { service, run } => {
                    self.checking.insert(service, run);
                }
                Effect::SetTimer { service, timer, .. } => self.timers.push((service, timer)),
                Effect::Publish(change) => self.published.push(change),
                Effect::Removed { service } => {
                    assert!(!self.has_process(&service), "{service} is left behind");
                    assert!(!self.definitions.contains_key(&service));
                }
            }
        }
    }

    fn take(which: &mut BTreeMap<ServiceName, u64>, index: usize) -> Option<(ServiceName, u64)> {
        let keys: Vec<_> = which.keys().cloned().collect();
        let key = keys.get(index % keys.len().max(1))?;
        which.remove_entry(key)
    }

    fn act(&mut self, action: &Action) {
        let services: Vec<_> = self.definitions.keys().cloned().collect();
        let effects = match action {
            Action::Start(index) => match services.get(index % services.len().max(1)) {
                Some(service) => self.core.start(service),
                None => return,
            },
            Action::Stop(index) => match services.get(index % services.len().max(1)) {
                Some(service) => self.core.stop(service),
                None => return,
            },
            Action::Restart(index) => match services.get(index % services.len().max(1)) {
                Some(service) => self.core.restart(service),
                None => return,
            },
            Action::Launched(index) => match Self::take(&mut self.launching, *index) {
                Some((service, run)) => {
                    self.running.insert(service.clone(), run);
                    self.core.launched(&service, run, NOW)
                }
                None => return,
            },
            Action::NotLaunched(index) => match Self::take(&mut self.launching, *index) {
                Some((service, run)) => self.core.exited(&service, run, &ended(false), NOW),
                None => return,
            },
            Action::Exited(index, succeeded) => match Self::take(&mut self.running, *index) {
                Some((service, run)) => self.core.exited(&service, run, &ended(*succeeded), NOW),
                None => return,
            },
            Action::Terminated(index) => match Self::take(&mut self.terminating, *index) {
                Some((service, run)) => self.core.exited(&service, run, &ended(false), NOW),
                None => return,
            },
            Action::Checked(index, healthy) => match Self::take(&mut self.checking, *index) {
                Some((service, run)) => {
                    let result = healthy.then_some(()).ok_or_else(|| "refused".to_owned());
                    self.core.health_checked(&service, run, result)
                }
                None => return,
            },
            Action::Timer(index) => {
                if self.timers.is_empty() {
                    return;
                }
                let (service, timer) = self.timers.remove(index % self.timers.len());
                self.core.timer(&service, timer)
            }
            Action::Redefine(services) => {
                self.define(
                    &services
                        .iter()
                        .map(|(n, d)| (*n, d.clone()))
                        .collect::<Vec<_>>(),
                );
                return;
            }
        };
        self.apply(effects);
    }

    /// Lets everything come to rest in a world where nothing fails.
    fn rest(&mut self) {
        for _ in 0..10_000 {
            let pending = self.timers.iter().position(|(service, _)| {
                let status = self.core.status(service);
                status.is_some_and(|status| status.wanted && !status.up)
            });
            let action = if !self.launching.is_empty() {
                Action::Launched(0)
            } else if !self.terminating.is_empty() {
                Action::Terminated(0)
            } else if !self.checking.is_empty() {
                Action::Checked(0, true)
            } else if let Some(index) = self.running.keys().position(|service| {
                let definition = self.core.definition(service);
                definition.is_some_and(|definition| definition.oneshot)
            }) {
                Action::Exited(index, true)
            } else if let Some(index) = pending {
                Action::Timer(index)
            } else {
                return;
            };
            self.act(&action);
        }
        panic!("it does not come to rest: {:?}", self.core);
    }
}

#[derive(Debug, Clone)]
enum Action {
    Start(usize),
    Stop(usize),
    Restart(usize),
    Launched(usize),
    NotLaunched(usize),
    Exited(usize, bool),
    Terminated(usize),
    Checked(usize, bool),
    Timer(usize),
    Redefine(Vec<(&'static str, Definition)>),
}

const NAMES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

/// Any set of services without a cycle: each refers only to those before it.
fn definitions() -> impl Strategy<Value = Vec<(&'static str, Definition)>> {
    let one = (
        any::<u8>(),
        any::<u8>(),
        any::<bool>(),
        any::<bool>(),
        0..3,
        any::<bool>(),
    );
    proptest::collection::vec(one, 0..=NAMES.len()).prop_map(|services| {
        let services = services.into_iter().enumerate();
        services
            .map(
                |(index, (requires, after, oneshot, enabled, restart, health))| {
                    let chosen = |bits: u8| -> Vec<&str> {
                        let earlier = NAMES[..index].iter().enumerate();
                        earlier
                            .filter(|(bit, _)| bits & (1 << bit) != 0)
                            .map(|(_, name)| *name)
                            .collect()
                    };
                    let mut definition = service(&chosen(requires), &chosen(after));
                    definition.oneshot = oneshot;
                    definition.enabled = enabled;
                    definition.restart = match restart {
                        0 => RestartPolicy::Always,
                        1 => RestartPolicy::OnFailure,
                        _ => RestartPolicy::Never,
                    };
                    if health {
                        definition = with_health(definition);
                    }
                    (NAMES[index], definition)
                },
            )
            .collect()
    })
}

fn action() -> impl Strategy<Value = Action> {
    let index = || 0..1000_usize;
    prop_oneof![
        2 => index().prop_map(Action::Start),
        2 => index().prop_map(Action::Stop),
        2 => index().prop_map(Action::Restart),
        8 => index().prop_map(Action::Launched),
        1 => index().prop_map(Action::NotLaunched),
        2 => (index(), any::<bool>()).prop_map(|(index, ok)| Action::Exited(index, ok)),
        5 => index().prop_map(Action::Terminated),
        4 => (index(), any::<bool>()).prop_map(|(index, ok)| Action::Checked(index, ok)),
        5 => index().prop_map(Action::Timer),
        1 => definitions().prop_map(Action::Redefine),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_order_of_events_keeps_the_order_of_dependencies(
        services in definitions(),
        actions in proptest::collection::vec(action(), 0..120),
    ) {
        let mut world = World::new(&services);
        for action in &actions {
            world.act(action);
        }
        world.rest();
        for (service, status) in world.core.list() {
            let running = world.running.contains_key(service);
            prop_assert_eq!(running, status.has_process, "{}", service);
            if !status.wanted {
                prop_assert!(!running, "{} was stopped and runs", service);
            }
            let failed = |name: &ServiceName| {
                let status = world.core.status(name);
                status.is_some_and(|status| !status.up)
            };
            let held_back = world.core.definition(service).is_some_and(|definition| {
                definition.dependencies().any(failed)
            });
            if status.wanted && !status.up && !held_back {
                prop_assert_eq!(status.state, State::Failed, "{}", service);
            }
        }
    }
}

#[test]
fn services_start_in_the_order_of_their_dependencies() {
    let mut world = World::new(&[
        ("app", service(&["db"], &["log"])),
        ("db", with_health(service(&[], &[]))),
        ("log", service(&[], &[])),
    ]);
    assert_eq!(
        world
            .launching
            .keys()
            .map(ServiceName::as_str)
            .collect::<Vec<_>>(),
        ["db", "log"]
    );
    world.act(&Action::Launched(0));
    world.act(&Action::Launched(0));
    assert!(!world.has_process(&name("app")), "db is not healthy yet");
    let waiting = world.core.status(&name("app")).unwrap();
    assert_eq!(waiting.message, "waiting for db (not healthy)");
    world.rest();
    assert!(world.core.status(&name("app")).unwrap().up);
}

#[test]
fn stopping_a_required_service_takes_its_dependents_down_and_starting_it_brings_them_back() {
    let mut world = World::new(&[("app", service(&["db"], &[])), ("db", service(&[], &[]))]);
    world.rest();
    let effects = world.core.stop(&name("db"));
    world.apply(effects);
    assert!(world.terminating.contains_key(&name("app")));
    assert!(
        world.running.contains_key(&name("db")),
        "not before app is gone"
    );
    world.rest();
    assert!(!world.has_process(&name("app")) && !world.has_process(&name("db")));
    let app = world.core.status(&name("app")).unwrap();
    assert_eq!(
        (app.state, app.message.as_str()),
        (State::Waiting, "waiting for db (Finished)")
    );
    let effects = world.core.start(&name("db"));
    world.apply(effects);
    world.rest();
    assert!(world.core.status(&name("app")).unwrap().up);
}

#[test]
fn a_crash_loop_backs_off_and_a_long_run_starts_over() {
    let mut definition = service(&[], &[]);
    definition.back_off.reset_after = Duration::from_secs(60);
    let mut world = World::new(&[("a", definition)]);
    let mut delays = Vec::new();
    for round in 0..4 {
        let (service, run) = world.launching.pop_first().unwrap();
        let _ = world.core.launched(&service, run, NOW);
        let ran_for = Duration::from_secs(if round == 3 { 61 } else { 1 });
        let effects = world
            .core
            .exited(&service, run, &ended(false), NOW + ran_for);
        for effect in effects {
            if let Effect::SetTimer { timer, after, .. } = effect {
                delays.push(after.as_millis());
                let effects = world.core.timer(&service, timer);
                world.apply(effects);
            }
        }
    }
    assert_eq!(delays, [100, 200, 400, 100]);
}

#[test]
fn what_an_earlier_supervisor_left_is_adopted() {
    let mut core = Core::default();
    let mut oneshot = service(&[], &[]);
    oneshot.oneshot = true;
    let definitions = [
        ("ran", service(&[], &[])),
        ("once", oneshot),
        ("stopped", service(&[], &[])),
        ("crashed", service(&[], &[])),
        ("new", service(&[], &[])),
    ];
    let definitions = definitions.map(|(text, definition)| (name(text), Arc::new(definition)));
    let found = [
        (name("ran"), Found::Running),
        (name("once"), Found::Ended(ended(true))),
        (name("stopped"), Found::Stopped),
        (name("crashed"), Found::Ended(ended(false))),
    ];
    let effects = core.define(definitions.into(), found.into(), NOW);
    let launched: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Launch { service, .. } => Some(service.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(launched, ["new"]);
    let state = |text: &str| core.status(&name(text)).unwrap().state;
    assert_eq!(state("ran"), State::Running);
    assert_eq!(state("once"), State::Finished);
    assert_eq!(state("stopped"), State::Finished);
    assert_eq!(state("crashed"), State::Waiting, "it backs off first");
}

#[test]
fn a_stale_answer_changes_nothing() {
    let mut world = World::new(&[("a", service(&[], &[]))]);
    let a = name("a");
    assert!(world.core.launched(&a, 7, NOW).is_empty());
    assert!(world.core.exited(&a, 0, &ended(true), NOW).is_empty());
    assert!(world.core.health_checked(&a, 1, Ok(()),).is_empty());
    assert!(world.core.timer(&a, 99).is_empty());
    assert_eq!(world.core.status(&a).unwrap().state, State::Starting);
}
