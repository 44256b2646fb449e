//! One sequence at a time, deadlines, preemption, and a disk that takes no record.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_lifecycle::{ActorId, Observer, Phase, Plan, Progress, Sequences, StartError, Task};
use tokio::sync::Notify;

use super::world::{record, request};

const LONG: Duration = Duration::from_secs(60);

/// Keeps what is published, and wakes who waits for an end.
#[derive(Clone, Default)]
struct Published(Arc<(Mutex<Vec<String>>, Notify)>);

impl Observer for Published {
    fn observe(&self, actor: &ActorId, progress: &Progress<'_>) {
        let text = match progress {
            Progress::SequenceFailed { failure, .. } => {
                format!("{actor} failed: {:?}: {}", failure.kind, failure.reason)
            }
            Progress::SequenceStopped { .. } => format!("{actor} stopped"),
            Progress::TaskStopped { task, error } => format!("{task}: {error:?}"),
            other => format!("{other:?}"),
        };
        self.0.0.lock().unwrap().push(text);
        self.0.1.notify_waiters();
    }
}

impl Published {
    fn all(&self) -> Vec<String> {
        self.0.0.lock().unwrap().clone()
    }

    async fn wait_for(&self, text: &str) -> String {
        let found = async {
            loop {
                let changed = self.0.1.notified();
                if let Some(line) = self.all().into_iter().find(|line| line.contains(text)) {
                    return line;
                }
                changed.await;
            }
        };
        let found = tokio::time::timeout(LONG, found).await;
        found.unwrap_or_else(|_| panic!("{text:?} was not published: {:#?}", self.all()))
    }
}

fn open(directory: &Path) -> (Sequences, Published) {
    let published = Published::default();
    let opened = Sequences::open(directory, published.clone()).unwrap();
    (opened.sequences, published)
}

fn plan_of(task: Task) -> Plan {
    Plan::new().phase(Phase::new("stopEverything").task(task))
}

fn hanging(deadline: Duration) -> Task {
    Task::new("hang", deadline, std::future::pending)
}

fn quick(name: &str) -> Task {
    Task::new(name, LONG, || async { Ok(()) })
}

#[tokio::test]
async fn a_second_sequence_is_refused_naming_the_first_and_a_forced_one_takes_over() {
    let directory = tempfile::tempdir().unwrap();
    let (sequences, published) = open(directory.path());
    let first = sequences
        .start(request(false), |_| plan_of(hanging(LONG)))
        .await
        .unwrap();
    let second = sequences
        .start(request(false), |_| Plan::new())
        .await
        .unwrap_err();
    let text = second.to_string();
    assert!(
        text.contains("upgrade") && text.contains(first.as_str()) && text.contains("alice"),
        "{text}"
    );
    let forced = sequences
        .start(request(true), |_| plan_of(quick("a")))
        .await
        .unwrap();
    let preempted = published.wait_for(&format!("{first} failed")).await;
    assert!(
        preempted.contains("Preempted") && preempted.contains(forced.as_str()),
        "{preempted}"
    );
    published.wait_for(&format!("{forced} stopped")).await;
    let again = sequences
        .start(request(false), |_| plan_of(quick("b")))
        .await;
    again.expect("the slot is free once the end is published");
}

#[tokio::test]
async fn of_many_concurrent_starts_one_runs() {
    let directory = tempfile::tempdir().unwrap();
    let (sequences, _) = open(directory.path());
    let starts = (0..20).map(|_| sequences.start(request(false), |_| plan_of(hanging(LONG))));
    let started = futures_util::future::join_all(starts).await;
    assert_eq!(started.iter().filter(|it| it.is_ok()).count(), 1);
}

#[tokio::test]
async fn a_task_that_hangs_or_panics_fails_its_sequence_with_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let (sequences, published) = open(directory.path());
    let soon = Duration::from_millis(20);
    let plan = plan_of(hanging(soon)).phase(Phase::new("reboot").task(quick("never")));
    sequences.start(request(false), |_| plan).await.unwrap();
    let failed = published.wait_for("failed").await;
    assert!(
        failed.contains("phase stopEverything: task hang: not done within 20ms"),
        "{failed}"
    );
    assert!(!published.all().iter().any(|line| line.contains("never")));

    let (_, published) = (0, Published::default());
    let opened = Sequences::open(directory.path(), published.clone()).unwrap();
    assert!(opened.interrupted.is_none(), "the end is recorded");
    let panics = Task::new("panics", LONG, || async { panic!("a bug") });
    let start = opened.sequences.start(request(false), |_| plan_of(panics));
    start.await.unwrap();
    published.wait_for("task panics: the task panicked").await;
}

#[tokio::test]
async fn a_failure_ends_the_tasks_beside_it_and_returns_to_service() {
    let directory = tempfile::tempdir().unwrap();
    let (sequences, published) = open(directory.path());
    let returned = Arc::new(Notify::new());
    let returns = Arc::clone(&returned);
    let fails = Task::new("fails", LONG, || async { Err("no room".into()) });
    let phase = Phase::new("stopEverything").task(hanging(LONG)).task(fails);
    let plan = Plan::new().phase(phase).after_failure(Task::new(
        "startServices",
        LONG,
        move || async move {
            returns.notify_one();
            Ok(())
        },
    ));
    sequences.start(request(false), |_| plan).await.unwrap();
    published.wait_for("task fails: no room").await;
    published.wait_for("hang: Some(\"cancelled").await;
    returned.notified().await;
}

#[tokio::test]
async fn a_forced_sequence_tolerates_failures_and_reports_them() {
    let directory = tempfile::tempdir().unwrap();
    let (sequences, published) = open(directory.path());
    let fails = || Task::new("fails", LONG, || async { Err("no room".into()) }).tolerated_if(true);
    let plan = plan_of(fails()).phase(Phase::new("reboot").task(quick("end")));
    let actor = sequences.start(request(true), |_| plan).await.unwrap();
    published.wait_for(&format!("{actor} stopped")).await;
    assert!(
        published
            .all()
            .contains(&"fails: Some(\"no room\")".to_owned())
    );
}

/// Removes the directory of the record, as a stand-in for a disk that takes nothing.
fn lose(directory: &Path) -> Task {
    let directory = directory.to_owned();
    Task::new("lose", LONG, move || async move {
        Ok(std::fs::remove_dir_all(directory)?)
    })
}

#[tokio::test]
async fn progress_that_cannot_be_recorded_ends_a_sequence_unless_it_is_forced() {
    for forced in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("lifecycle");
        let (sequences, published) = open(&directory);
        let plan = plan_of(lose(&directory)).phase(Phase::new("reboot").task(quick("end")));
        let actor = sequences.start(request(forced), |_| plan).await.unwrap();
        if forced {
            published.wait_for(&format!("{actor} stopped")).await;
        } else {
            published.wait_for("cannot record the progress").await;
            let refused = sequences.start(request(false), |_| Plan::new()).await;
            assert!(matches!(refused, Err(StartError::NotRecorded { .. })));
            assert!(sequences.running().is_none());
        }
    }
}

#[tokio::test]
async fn an_unreadable_record_is_reported_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("sequence.json"), "{\"version\":9}").unwrap();
    let published = Published::default();
    let opened = Sequences::open(directory.path(), published.clone()).unwrap();
    assert!(opened.unreadable.unwrap().to_string().contains("version 9"));
    let start = opened
        .sequences
        .start(request(false), |_| plan_of(quick("a")));
    let actor = start.await.unwrap();
    published.wait_for(&format!("{actor} stopped")).await;
    assert_eq!(record(directory.path()).unwrap().actor, actor);
}

#[tokio::test]
async fn an_engine_that_is_closed_starts_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let (sequences, _) = open(directory.path());
    sequences.close();
    let refused = sequences.start(request(true), |_| Plan::new()).await;
    assert!(matches!(refused, Err(StartError::Stopping)));
}

#[test]
fn actor_ids_are_canonical_uuids() {
    let actor = ActorId::random();
    assert_eq!(actor.as_str().parse(), Ok(actor.clone()));
    for bad in [
        "",
        "x",
        &actor.as_str().to_uppercase(),
        &actor.as_str()[1..],
    ] {
        assert!(bad.parse::<ActorId>().is_err(), "{bad}");
    }
}
