//! The daemon is killed at every step of a sequence: the next one ends it where it should end, and
//! nothing runs twice that must not.

use mainstay_lifecycle::TaskState;
use proptest::prelude::*;

use super::world::{Happened, Rule, Spec, World, record};
use Rule::{Again, Check, Never};

fn finished(phase: usize, task: usize) -> Happened {
    Happened::Finished(format!("task{phase}.{task}"))
}

fn began(phase: usize, task: usize) -> Happened {
    Happened::Began(format!("task{phase}.{task}"))
}

/// Kills a daemon at each of `kills`, lets the last one run to the end, and checks the outcome.
/// Returns the steps of the last daemon, or `None` if a kill came after the end.
fn run(spec: &Spec, kills: &[usize]) -> usize {
    let root = tempfile::tempdir().unwrap();
    let disk = |number: usize| root.path().join(number.to_string());
    let world = World::new();
    let mut started_never = false;
    std::fs::create_dir(disk(0)).unwrap();
    for (daemon, kill) in kills.iter().copied().map(Some).chain([None]).enumerate() {
        let (found, left) = (disk(daemon), disk(daemon + 1));
        let killed = world.daemon(spec, &found, &left, kill);
        if !killed {
            break;
        }
        let tasks = record(&left)
            .map(|record| record.phases)
            .unwrap_or_default();
        for (phase, rules) in tasks.iter().zip(spec) {
            for (task, rule) in phase.tasks.iter().zip(rules) {
                started_never |= *rule == Never && task.state == TaskState::Started;
            }
        }
    }
    let happened = world.happened();
    let ends: Vec<_> = happened
        .iter()
        .filter_map(|it| match it {
            Happened::Published(text) => text.strip_prefix("sequence ended"),
            _ => None,
        })
        .collect();
    assert!(!ends.is_empty(), "the end is published: {happened:#?}");
    let well = ends.iter().all(|end| *end == " well");
    assert_eq!(!well, started_never, "{ends:?}\n{happened:#?}");
    for (phase, rules) in spec.iter().enumerate() {
        for (task, rule) in rules.iter().enumerate() {
            let runs = world.count(&began(phase, task));
            let effects = world.count(&finished(phase, task));
            match rule {
                Never => assert!(runs <= 1, "task{phase}.{task} ran {runs} times"),
                Check => assert!(effects <= 1, "task{phase}.{task} had {effects} effects"),
                Again => {}
            }
            if well {
                assert!(
                    effects >= 1,
                    "task{phase}.{task} has not run: {happened:#?}"
                );
            }
            // A task begins only after all tasks of the phases before have finished.
            let first = happened.iter().position(|it| *it == began(phase, task));
            for (before, tasks) in spec.iter().enumerate().take(phase) {
                for other in 0..tasks.len() {
                    let done = happened
                        .iter()
                        .position(|it| *it == finished(before, other));
                    assert!(first.is_none() || done < first, "{happened:#?}");
                }
            }
        }
    }
    world.steps()
}

#[test]
fn killed_at_every_step_a_sequence_ends_where_it_should() {
    // As an upgrade: idempotent stops side by side, an empty phase, a task that must not run
    // twice, and a last one that only the next daemon can judge.
    let spec = vec![
        vec![Again],
        vec![Again, Again],
        vec![],
        vec![Never],
        vec![Check, Again],
        vec![Check],
    ];
    let steps = run(&spec, &[]);
    assert!(steps > 40, "{steps}");
    for kill in 0..steps {
        run(&spec, &[kill]);
    }
}

#[test]
fn a_sequence_that_ends_every_daemon_fails_at_last() {
    let spec = vec![vec![Again]];
    let root = tempfile::tempdir().unwrap();
    let disk = |number: usize| root.path().join(number.to_string());
    std::fs::create_dir(disk(0)).unwrap();
    let world = World::new();
    // Steps: the sequence, its phase and its task start, and the task begins.
    let mut daemons = 0;
    while world.daemon(&spec, &disk(daemons), &disk(daemons + 1), Some(3)) {
        daemons += 1;
        assert!(daemons < 20, "it is resumed for ever");
    }
    let last = world.happened().pop().unwrap();
    let Happened::Published(end) = last else {
        panic!("{last:?}")
    };
    assert!(
        end.contains("the daemon ended 5 times while it ran"),
        "{end}"
    );
}

fn rule() -> impl Strategy<Value = Rule> {
    prop_oneof![Just(Again), Just(Never), Just(Check)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_survives_up_to_three_kills_at_any_step(
        spec in prop::collection::vec(prop::collection::vec(rule(), 0..3), 1..4),
        kills in prop::collection::vec(0..40_usize, 0..4),
    ) {
        run(&spec, &kills);
    }
}
