//! Reboot, shutdown and reset of a node, and the sequences they run.

mod handover;
mod hostile;
mod kill_points;
mod platform;
mod reboot;
mod reset;
mod rolling;

use std::path::Path;

use mainstay_api::event;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{
    Event, EventsRequest, PhaseEvent, RebootRequest, SequenceEvent, TaskEvent, phase_event,
    sequence_event, task_event,
};
use mainstay_api::runtime::{Cell, ExecutableState};
use mainstay_testkit::{CellClient, Sweeper, TestNode, TestNodeBuilder, connect_unix, soon};
use tonic::transport::Channel;

/// A program that ignores SIGTERM, and says when it does.
const STUBBORN: &str = "sh -c 'trap : TERM; echo ready; while :; do sleep 1000 & wait; done'";

/// A node with cells of its own, of which nothing is left after the test.
struct Subject {
    node: TestNode,
    // Declared last: cells outlive their node.
    sweeper: Sweeper,
}

impl Subject {
    fn start(name: &str) -> Self {
        Self::start_with(name, TestNode::builder(), "", "")
    }

    /// Starts a node with further keys and sections in its configuration, and further keys of
    /// `[cells]`.
    fn start_with(name: &str, builder: TestNodeBuilder, keys: &str, cells: &str) -> Self {
        let sweeper = Sweeper::start(&format!("e2e-lifecycle-{name}"));
        let config = format!("{keys}\n[cells]\ncgroup = {:?}\n{cells}", sweeper.cgroup());
        Self {
            node: builder.config(&config).start(),
            sweeper,
        }
    }

    /// A node whose reboots wait for a program that does not end, until they are forced.
    async fn start_stubborn(name: &str) -> Self {
        let subject = Self::start_with(name, TestNode::builder(), "", "stop_grace = '10m'\n");
        subject.run("stubborn", STUBBORN).await;
        let mut client = subject.cells().await;
        let mut log = client.log("stubborn/program", true).await.unwrap();
        soon("the program", log.message()).await.unwrap();
        subject
    }

    async fn machine(&self) -> MachineServiceClient<Channel> {
        MachineServiceClient::new(self.node.connect_locally().await)
    }

    async fn cells(&self) -> CellClient {
        CellClient::new(&self.node.connect_locally().await)
    }

    /// Runs a program in a cell of its own.
    async fn run(&self, cell: &str, command: &str) {
        let mut client = self.cells().await;
        let cell = Cell {
            name: cell.to_owned(),
            ..Cell::default()
        };
        client.allocate_as(cell.clone()).await.unwrap();
        client.start(&cell.name, "program", command).await.unwrap();
    }

    /// The PIDs in all cgroups of the node, a line each.
    fn processes(&self) -> String {
        let find = "find /sys/fs/cgroup -maxdepth 2 -type d -name \"$1*\" -print0 |
            xargs -0 -I {} find {} -name cgroup.procs -exec cat {} +";
        let output = std::process::Command::new("sh")
            .args(["-c", find, "sh", self.sweeper.cgroup()])
            .output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    }

    /// The state of the program of each cell.
    async fn programs(&self) -> Vec<(String, ExecutableState)> {
        let cells = self.cells().await.list().await.unwrap();
        let states = cells.into_iter().map(|status| {
            let state = status.executables[0].state();
            (status.cell.unwrap().name, state)
        });
        states.collect()
    }

    /// Starts a reboot; returns its actor.
    async fn reboot(&self) -> String {
        let answer = self.machine().await.reboot(RebootRequest::default()).await;
        let mut messages = answer.unwrap().into_inner().messages;
        assert_eq!(messages.len(), 1);
        messages.pop().unwrap().actor_id
    }

    /// All events of an actor so far, in words.
    async fn events(&self, actor: &str) -> Vec<String> {
        self.try_events(actor).await.unwrap()
    }

    /// As [`Subject::events`], of a node that may be going down.
    async fn try_events(&self, actor: &str) -> Result<Vec<String>, Box<dyn std::error::Error>> {
        let channel = connect_unix(&self.node.socket()).await?;
        let mut machine = MachineServiceClient::new(channel);
        let request = EventsRequest {
            tail_events: -1,
            with_actor_id: actor.to_owned(),
            until_now: true,
            ..EventsRequest::default()
        };
        let mut stream = machine.events(request).await?.into_inner();
        let mut events = Vec::new();
        while let Some(event) = soon("the events", stream.message()).await? {
            events.extend(words(&event));
        }
        Ok(events)
    }

    /// Waits until an event of the actor has these words, across restarts of the daemon.
    async fn wait_for_end(&self, actor: &str, wanted: &str) {
        soon(wanted, async {
            loop {
                match self.try_events(actor).await {
                    Ok(events) if events.iter().any(|it| it.contains(wanted)) => return,
                    _ => tokio::task::yield_now().await,
                }
            }
        })
        .await;
    }

    /// Waits until an event of the actor has these words.
    async fn wait_for(&self, actor: &str, wanted: &str) {
        let request = EventsRequest {
            tail_events: -1,
            with_actor_id: actor.to_owned(),
            ..EventsRequest::default()
        };
        let mut stream = self
            .machine()
            .await
            .events(request)
            .await
            .unwrap()
            .into_inner();
        soon(wanted, async {
            loop {
                let event = stream.message().await.unwrap().expect("the stream goes on");
                if words(&event).is_some_and(|words| words.contains(wanted)) {
                    return;
                }
            }
        })
        .await;
    }
}

/// The words of an event: `phase umount START`.
fn words(event: &Event) -> Option<String> {
    let packed = event.data.as_ref()?;
    if let Ok(phase) = event::unpack::<PhaseEvent>(packed) {
        let action = match phase.action() {
            phase_event::Action::Start => "START",
            phase_event::Action::Stop => "STOP",
        };
        return Some(format!("phase {} {action}", phase.phase));
    }
    if let Ok(task) = event::unpack::<TaskEvent>(packed) {
        let action = match task.action() {
            task_event::Action::Start => "START",
            task_event::Action::Stop => "STOP",
        };
        return Some(format!("task {} {action}", task.task));
    }
    let sequence: SequenceEvent = event::unpack(packed).ok()?;
    let name = &sequence.sequence;
    Some(match sequence.action() {
        sequence_event::Action::Start => format!("sequence {name} START"),
        sequence_event::Action::Stop => format!("sequence {name} STOP"),
        sequence_event::Action::Noop => {
            format!("sequence {name} NOOP {}", sequence.error.unwrap().message)
        }
    })
}

/// The phases that were started, in order, without repetition.
fn phases(events: &[String]) -> Vec<&str> {
    let mut phases = Vec::new();
    for event in events {
        let phase = event.strip_prefix("phase ");
        if let Some(phase) = phase.and_then(|it| it.strip_suffix(" START"))
            && !phases.contains(&phase)
        {
            phases.push(phase);
        }
    }
    phases
}

fn count(events: &[String], wanted: &str) -> usize {
    events.iter().filter(|event| *event == wanted).count()
}

/// The PID in the lock of a state directory.
fn serving_pid(state: &Path) -> String {
    let pid = std::fs::read_to_string(state.join("run/lock")).unwrap();
    pid.trim().to_owned()
}
