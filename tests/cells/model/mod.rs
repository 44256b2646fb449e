//! Cells under 64 callers at once, checked against a model, while the daemon lives and while it
//! is killed again and again.
//!
//! Half of the callers have a tree of cells each, so every answer is known beforehand; the others
//! fight over a few trees, and what they are told must fit some order of their calls. `tree` says
//! what each call does, `judge` looks for the order, `traces` for what is left in the end.
//!
//! The calls come from a seed that a failure prints and `MAINSTAY_SEED` sets; their timing is up to
//! the machine. `MAINSTAY_SOAK=10` makes ten times as
//! many calls.

mod caller;
mod calls;
mod judge;
mod programs;
pub(super) mod traces;
mod tree;
mod witness;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::observe::{GetSubProcessStreamRequest, LogChannelType};
use mainstay_api::runtime::cell_service_client::CellServiceClient;
use mainstay_testkit::{Sweeper, TestNode, soon, wait_until_exited};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use caller::{Caller, SHARES, WEIGHT, cpu_shares};
use calls::{Answer, Call, SeenCell};
use judge::History;
use programs::{How, LINES, Program};
use traces::{Traces, children_of};
use witness::Witness;

/// Trees of one caller each.
const ALONE: usize = 32;
/// Trees of many.
const SHARED: usize = 4;
const CALLERS_OF_SHARED: usize = 8;
/// Calls of all callers together.
const CALLS: usize = 4000;
const CRASHES: usize = 6;
/// Before a crash, at least and at most.
const CALLS_TO_CRASH: std::ops::Range<usize> = 100..700;

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_are_linearizable() {
    let mut run = Run::new("calm");
    let mut node = run.start_node();
    let callers = run.callers(&node).await;
    let turns = Turns::new(CALLS * soak(), usize::MAX);
    let mut tasks = start(callers, &turns);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    run.finish(&mut node).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_repeatedly_loses_nothing() {
    let mut run = Run::new("crashes");
    let mut node = run.start_node();
    for crash in 1..=CRASHES * soak() {
        let channel = node.connect_locally().await;
        let witness = Witness::start(channel, node.scratch(), crash as u64).await;
        let zygote = children_of(node.pid());
        let turns = Turns::new(usize::MAX, run.random.usize(CALLS_TO_CRASH));
        let mut tasks = start(run.callers(&node).await, &turns);
        tokio::select! {
            () = turns.crash.notified() => {}
            Some(ended) = tasks.join_next() => panic!("a caller stopped: {ended:?}"),
        }
        run.killed.store(true, Ordering::SeqCst);
        node.kill();
        while let Some(ended) = tasks.join_next().await {
            ended.unwrap();
        }
        let witness = witness.end();
        assert!(
            zygote.iter().all(wait_until_exited),
            "the dead daemon's child lives on"
        );
        node = node.restart();
        run.killed.store(false, Ordering::SeqCst);
        run.look_again(&node).await;
        witness.assert_known(node.connect_locally().await).await;
    }
    let turns = Turns::new(CALLS / 4, usize::MAX);
    let mut tasks = start(run.callers(&node).await, &turns);
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap();
    }
    witness::free(node.connect_locally().await).await;
    run.finish(&mut node).await;
}

/// How many times longer than usual.
fn soak() -> usize {
    let asked = std::env::var("MAINSTAY_SOAK").ok();
    asked.map_or(1, |times| times.parse().expect("MAINSTAY_SOAK is a number"))
}

struct Run {
    seed: u64,
    random: fastrand::Rng,
    trees: Vec<(String, Arc<History>)>,
    killed: Arc<AtomicBool>,
    traces: Arc<Traces>,
    // Declared last: cells outlive their node.
    sweeper: Sweeper,
}

impl Run {
    fn new(name: &str) -> Self {
        let asked = std::env::var("MAINSTAY_SEED").ok();
        let seed = asked.map_or_else(
            || fastrand::u64(..),
            |seed| seed.parse().expect("MAINSTAY_SEED is a number"),
        );
        let alone = (0..ALONE).map(|tree| format!("alone-{tree}"));
        let shared = (0..SHARED).map(|tree| format!("shared-{tree}"));
        let trees = alone.chain(shared).map(|tree| (tree, Arc::default()));
        let sweeper = Sweeper::start(&format!("model-{name}"));
        Self {
            seed,
            random: fastrand::Rng::with_seed(seed),
            trees: trees.collect(),
            killed: Arc::default(),
            traces: Arc::new(Traces::before(sweeper.cgroup())),
            sweeper,
        }
    }

    fn start_node(&self) -> TestNode {
        let config = format!("[cells]\ncgroup = {:?}\n", self.sweeper.cgroup());
        TestNode::builder().config(&config).start()
    }

    async fn callers(&mut self, node: &TestNode) -> Vec<Caller> {
        let mut callers = Vec::new();
        for at in 0..self.trees.len() {
            let count = if at < ALONE { 1 } else { CALLERS_OF_SHARED };
            for _ in 0..count {
                callers.push(self.caller(at, node).await);
            }
        }
        callers
    }

    async fn caller(&mut self, tree: usize, node: &TestNode) -> Caller {
        let channel = if self.random.bool() {
            node.connect_locally().await
        } else {
            node.connect().await
        };
        let (name, history) = &self.trees[tree];
        Caller {
            client: CellServiceClient::new(channel),
            tree: name.clone(),
            history: Arc::clone(history),
            random: self.random.fork(),
            killed: Arc::clone(&self.killed),
            alone: (tree < ALONE).then(|| Arc::clone(&self.traces)),
        }
    }

    /// Lists what a new daemon has adopted, from where the next calls go on.
    async fn look_again(&mut self, node: &TestNode) {
        for tree in 0..self.trees.len() {
            self.trees[tree].1.crash();
            let mut caller = self.caller(tree, node).await;
            let cell = caller.tree.clone();
            if let Answer::Listed(cells) = caller.call(&Call::List { cell }).await {
                self.assert_limited(&cells);
            }
        }
    }

    /// Also those of which nobody knows whether they were made to the end.
    fn assert_limited(&self, cells: &[SeenCell]) {
        for cell in cells {
            if cpu_shares(&cell.name) == Some(SHARES) {
                let limits = self.traces.cpu_limits_of(&cell.name);
                let is_limited = matches!(limits, (Some(SHARES), _) | (None, Some(WEIGHT)));
                assert!(is_limited, "{cell:?} is limited to {limits:?}");
            }
        }
    }

    /// Frees everything, and has everything judged.
    async fn finish(&mut self, node: &mut TestNode) {
        for tree in 0..self.trees.len() {
            let mut caller = self.caller(tree, node).await;
            let cell = caller.tree.clone();
            if let Answer::Listed(cells) = caller.call(&Call::List { cell: cell.clone() }).await {
                self.assert_limited(&cells);
                let executables = cells.iter().flat_map(|cell| cell.executables.values());
                for executable in executables {
                    if (executable.program, executable.end) == (Program::Writes, Some(How::Code(9)))
                    {
                        assert_all_written(node.connect_locally().await, executable.pid).await;
                    }
                }
            }
            caller.call(&Call::Free { cell: cell.clone() }).await;
            caller.call(&Call::List { cell }).await;
        }
        for (tree, history) in &self.trees {
            if let Err(why) = history.judge() {
                panic!("the answers about {tree} fit no order of the calls:\n{why}");
            }
        }
        let zygote = children_of(node.pid());
        assert!(node.stop().success());
        assert!(
            zygote.iter().all(wait_until_exited),
            "a child of the daemon lives on"
        );
        self.traces.assert_none(&node.state());
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("asked with MAINSTAY_SEED={}", self.seed);
        }
    }
}

/// Counts the calls of all callers.
struct Turns {
    taken: AtomicUsize,
    last: usize,
    crash_at: usize,
    crash: Notify,
}

impl Turns {
    fn new(last: usize, crash_at: usize) -> Arc<Self> {
        Arc::new(Self {
            taken: AtomicUsize::new(0),
            last,
            crash_at,
            crash: Notify::new(),
        })
    }

    /// Whether there is another call to be made.
    fn take(&self) -> bool {
        let taken = self.taken.fetch_add(1, Ordering::SeqCst);
        if taken == self.crash_at {
            self.crash.notify_one();
        }
        taken < self.last
    }
}

/// Everybody calls until there are no more turns or no daemon.
fn start(callers: Vec<Caller>, turns: &Arc<Turns>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for mut caller in callers {
        let turns = Arc::clone(turns);
        tasks.spawn(async move { while turns.take() && caller.call_something().await {} });
    }
    tasks
}

async fn assert_all_written(channel: Channel, pid: i32) {
    let request = GetSubProcessStreamRequest {
        channel_type: LogChannelType::ChannelStdout.into(),
        process_id: pid.into(),
        ..GetSubProcessStreamRequest::default()
    };
    let mut client = ObserveClient::new(channel);
    let output = client.get_sub_process_stream(request).await.unwrap();
    let mut output = output.into_inner();
    let mut lines = Vec::new();
    while let Some(item) = soon("a line", output.message()).await.unwrap() {
        lines.push(item.line);
    }
    let all: Vec<String> = (0..LINES).map(|line| format!("line {line}")).collect();
    assert_eq!(lines, all);
}
