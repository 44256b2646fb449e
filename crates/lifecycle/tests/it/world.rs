//! A world that outlives daemons: what tasks did, what was published, and the step at which the
//! daemon is killed. Each start and end of a task, and each event, is a step.

use std::path::Path;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use mainstay_lifecycle::{
    ActorId, AfterCrash, Finding, Observer, Opened, Phase, Plan, Progress, Request, SequenceRecord,
    Sequences, Task,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    Again,
    Never,
    Check,
}

/// The rules of the tasks of each phase.
pub type Spec = Vec<Vec<Rule>>;

/// An effect or an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happened {
    Began(String),
    /// The effect of a task, which a check finds.
    Finished(String),
    Published(String),
}

#[derive(Clone)]
pub struct World {
    state: Arc<Mutex<State>>,
    /// The number of the daemon that lives in it.
    daemon: usize,
}

struct State {
    /// The daemon that is alive; nothing that others do counts.
    alive: usize,
    happened: Vec<Happened>,
    steps: usize,
    kill_at: Option<usize>,
    killed: Option<Sender<()>>,
    /// Keeps the threads of killed daemons where they are.
    parked: Vec<Sender<()>>,
}

impl World {
    pub fn new() -> Self {
        let state = Arc::new(Mutex::new(State {
            alive: 0,
            happened: Vec::new(),
            steps: 0,
            kill_at: None,
            killed: None,
            parked: Vec::new(),
        }));
        Self { state, daemon: 0 }
    }

    pub fn happened(&self) -> Vec<Happened> {
        self.state.lock().unwrap().happened.clone()
    }

    pub fn steps(&self) -> usize {
        self.state.lock().unwrap().steps
    }

    /// Counts a step; returns what to wait for, forever, if the daemon is killed at it or was
    /// before. What happens at the step has happened then, or not.
    fn step(&self, happened: Happened, lands: bool) -> Option<Receiver<()>> {
        let mut state = self.state.lock().unwrap();
        let was_killed = state.kill_at.is_some_and(|at| state.steps > at);
        if was_killed || state.alive != self.daemon {
            return Some(state.park());
        }
        let is_killed = state.kill_at == Some(state.steps);
        state.steps += 1;
        if !is_killed || lands {
            state.happened.push(happened);
        }
        is_killed.then(|| {
            let _ = state.killed.take().unwrap().send(());
            state.park()
        })
    }

    async fn step_of_task(&self, happened: Happened) {
        let lands = matches!(happened, Happened::Began(_));
        if self.step(happened, lands).is_some() {
            std::future::pending::<()>().await;
        }
    }

    pub fn plan(&self, spec: &Spec) -> Plan {
        let mut plan = Plan::new();
        for (phase, rules) in spec.iter().enumerate() {
            let mut built = Phase::new(format!("phase{phase}"));
            for (task, rule) in rules.iter().enumerate() {
                built = built.task(self.task(format!("task{phase}.{task}"), *rule));
            }
            plan = plan.phase(built);
        }
        plan
    }

    fn task(&self, name: String, rule: Rule) -> Task {
        let finished = Happened::Finished(name.clone());
        let after = match rule {
            Rule::Again => AfterCrash::Again,
            Rule::Never => AfterCrash::Never,
            Rule::Check => {
                let (world, finished) = (self.clone(), finished.clone());
                AfterCrash::Check(Box::new(move || {
                    match world.happened().contains(&finished) {
                        true => Finding::Done,
                        false => Finding::NotDone,
                    }
                }))
            }
        };
        let (world, began) = (self.clone(), Happened::Began(name.clone()));
        let work = move || async move {
            world.step_of_task(began).await;
            // Killed after the effect, before anybody knows of it.
            world.step_of_task(finished.clone()).await;
            world
                .step_of_task(Happened::Published("effect".to_owned()))
                .await;
            Ok(())
        };
        Task::new(name, Duration::from_secs(60), work).after_crash(after)
    }

    /// Runs a daemon until the sequence ends or the daemon is killed at the step. `before` is the
    /// disk that it finds, `after` the one that it leaves. Returns whether it was killed.
    pub fn daemon(&self, spec: &Spec, disk: &Path, leaves: &Path, kill_at: Option<usize>) -> bool {
        let (killed, when_killed) = channel();
        let world = {
            let mut state = self.state.lock().unwrap();
            state.alive += 1;
            state.steps = 0;
            state.kill_at = kill_at;
            state.killed = Some(killed);
            Self {
                state: Arc::clone(&self.state),
                daemon: state.alive,
            }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let (spec, path) = (spec.clone(), disk.to_owned());
        let (ended, when_ended) = channel();
        runtime.spawn(async move {
            let Opened {
                sequences,
                interrupted,
                unreadable,
            } = Sequences::open(&path, world.clone()).unwrap();
            assert!(unreadable.is_none(), "{unreadable:?}");
            match interrupted {
                Some(interrupted) => sequences.resume(interrupted, world.plan(&spec)).await,
                // Ended already, or killed before anything was recorded.
                None if world.has_ended() => {}
                None => {
                    sequences
                        .start(request(false), |_| world.plan(&spec))
                        .await
                        .unwrap();
                }
            }
            while sequences.running().is_some() {
                tokio::task::yield_now().await;
            }
            let _ = ended.send(());
        });
        let killed = loop {
            if when_killed.recv_timeout(Duration::from_millis(1)).is_ok() {
                break true;
            }
            match when_ended.try_recv() {
                Ok(()) => break false,
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => panic!("the daemon panicked"),
            }
        };
        // The disk of the moment; the threads of the killed daemon may still write to theirs.
        std::fs::create_dir_all(leaves).unwrap();
        let record = disk.join("sequence.json");
        if killed && record.exists() {
            std::fs::copy(record, leaves.join("sequence.json")).unwrap();
        }
        runtime.shutdown_background();
        killed
    }

    pub fn has_ended(&self) -> bool {
        let is_end = |it: &Happened| matches!(it, Happened::Published(text) if text.starts_with("sequence ended"));
        self.happened().iter().any(is_end)
    }

    pub fn count(&self, wanted: &Happened) -> usize {
        self.happened().iter().filter(|it| *it == wanted).count()
    }
}

impl State {
    fn park(&mut self) -> Receiver<()> {
        let (keep, wait) = channel();
        self.parked.push(keep);
        wait
    }
}

impl Observer for World {
    fn observe(&self, _: &ActorId, progress: &Progress<'_>) {
        let text = match progress {
            Progress::SequenceStopped { .. } => "sequence ended well".to_owned(),
            Progress::SequenceFailed { failure, .. } => {
                format!("sequence ended: {}", failure.reason)
            }
            other => format!("{other:?}"),
        };
        if let Some(forever) = self.step(Happened::Published(text), true) {
            let _ = forever.recv();
        }
    }
}

pub fn request(forced: bool) -> Request {
    Request {
        sequence: "upgrade".to_owned(),
        requested_by: "alice".to_owned(),
        forced,
        arguments: serde_json::json!({}),
    }
}

/// The record on a disk.
pub fn record(disk: &Path) -> Option<SequenceRecord> {
    let bytes = std::fs::read(disk.join("sequence.json")).ok()?;
    Some(serde_json::from_slice(&bytes).unwrap())
}
