//! Upgrade and rollback: a daemon adopts the cells of another build on the same state, in both
//! directions. The other build is a real one, of the commit in `tests/older-build.txt`.

use std::path::{Path, PathBuf};

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{EventsRequest, LogsRequest};
use mainstay_api::runtime::{
    Cell, CellLimits, Executable, ExecutableState, ExecutableStatus, StartCellRequest, TerminalSize,
};
use mainstay_testkit::{TestNode, binary, older_binary, require, soon};

use super::cell_node::CellNode;
use super::survival::{COUNTER, assert_counted, published, waits_for};

#[derive(Debug, Clone, Copy)]
enum Shutdown {
    Stop,
    Kill,
}

#[tokio::test]
async fn todays_daemon_adopts_cells_of_a_stopped_older_build() {
    require!(Root, OlderBuild);
    take_over_and_back(&older_binary(), &binary(), Shutdown::Stop).await;
}

#[tokio::test]
async fn todays_daemon_adopts_cells_of_a_killed_older_build() {
    require!(Root, OlderBuild);
    take_over_and_back(&older_binary(), &binary(), Shutdown::Kill).await;
}

#[tokio::test]
async fn an_older_build_adopts_cells_of_todays_stopped_daemon() {
    require!(Root, OlderBuild);
    take_over_and_back(&binary(), &older_binary(), Shutdown::Stop).await;
}

#[tokio::test]
async fn an_older_build_adopts_cells_of_todays_killed_daemon() {
    require!(Root, OlderBuild);
    take_over_and_back(&binary(), &older_binary(), Shutdown::Kill).await;
}

/// The shim of a cell stays of the build that forked it.
#[tokio::test]
async fn a_shim_of_an_older_build_refuses_a_standard_input_and_a_terminal() {
    require!(Root, OlderBuild);
    let older = older_binary();
    let test = CellNode::start_as("older-shim", TestNode::builder().program(&older));
    test.allocate("web", &[]).await;
    test.start_in("web", "nap", "sleep 1000").await;
    let pipe = test.node.scratch().join("unused");
    std::fs::write(&pipe, "").unwrap();
    let test = test.replace(&binary(), Shutdown::Stop, &pipe);
    let asks = |name: &str| Executable {
        name: name.to_owned(),
        command: "cat".to_owned(),
        cell_name: "web".to_owned(),
        ..Executable::default()
    };
    let stdin = Executable {
        stdin: true,
        ..asks("stdin")
    };
    let terminal = Executable {
        terminal: Some(TerminalSize {
            rows: 24,
            columns: 80,
        }),
        ..asks("terminal")
    };
    for executable in [stdin, terminal] {
        let executable = Some(executable);
        let mut cells = test.cells().await;
        let started = cells.start(StartCellRequest { executable }).await;
        let status = started.unwrap_err();
        assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
        assert!(status.message().contains("earlier build"), "{status}");
    }
    // Without either, it starts as before.
    let pid = test.start_in("web", "plain", "cat").await;
    assert_eq!(test.output(pid, 0).await, []);
    test.finish().await;
}

/// `first` starts cells, `second` adopts them, then `first` again, then `second` again.
async fn take_over_and_back(first: &Path, second: &Path, shutdown: Shutdown) {
    let mut test = CellNode::start_as("upgrade", TestNode::builder().program(first));
    let running = Running::start(&test).await;
    let mut journals = Journals::read(&test.node).await;

    for (round, program) in [second, first, second].into_iter().enumerate() {
        // Exits while no daemon runs.
        let pipe = test.node.scratch().join(format!("pipe{round}"));
        let unseen = format!("unseen{round}");
        let pid = test.start_in("web", &unseen, &waits_for(&pipe, 42)).await;
        test.follow_until(&format!("web/{unseen}"), "ready").await;
        let before = published(&test.node, &format!("web/{unseen}")).await;
        test = test.replace(program, shutdown, &pipe);

        journals = journals.assert_continued(&test.node).await;
        running.assert_adopted(&test, round).await;
        let lines = test.output(pid, 0).await;
        let lines: Vec<&str> = lines.iter().map(|item| item.line.as_str()).collect();
        assert_eq!(lines, ["ready", "go"]);
        let status = test.executable("web", &unseen).await;
        assert_eq!(
            (status.state(), status.exit_code),
            (ExecutableState::Exited, 42)
        );
        let after = published(&test.node, &format!("web/{unseen}")).await;
        assert_eq!(after[..before.len()], before[..]);
        assert_eq!(after.len(), before.len() + 1, "its exit, once: {after:?}");
        running.assert_usable(&test, round).await;
    }

    let mut client = test.client().await;
    client.stop("web", "counter").await.unwrap();
    assert_terminated(&test.executable("web", "counter").await);
    client.free("web").await.unwrap();
    for status in test.list().await {
        client.free(&status.cell.unwrap().name).await.unwrap();
    }
    // The older build does not know of PID 1 of today's cells, and does not wait for it: it exits
    // when PID 1 of the machine has reaped all others.
    test.traces.until_exited();
    test.finish().await;
}

impl CellNode {
    /// Ends the daemon, opens `pipe` for whatever waits on it, and starts `program` on the same
    /// state.
    fn replace(mut self, program: &Path, shutdown: Shutdown, pipe: &PathBuf) -> Self {
        match shutdown {
            Shutdown::Stop => assert!(self.node.stop().success()),
            Shutdown::Kill => self.node.kill(),
        }
        std::fs::write(pipe, "go\n").unwrap();
        self.with_node(|node| node.into_builder().program(program).start())
    }
}

/// PIDs of what runs from the first daemon to the last.
struct Running {
    counter: i32,
    nested: i32,
    limited: i32,
    exited: i32,
}

impl Running {
    async fn start(test: &CellNode) -> Self {
        test.allocate("web", &[]).await;
        test.allocate("web/nested", &[]).await;
        let limited = Cell {
            name: "limited".to_owned(),
            cpu_shares: 512,
            limits: Some(CellLimits {
                memory_max: 64 << 20,
                pids_max: 50,
                ..CellLimits::default()
            }),
            ..Cell::default()
        };
        test.client().await.allocate_as(limited).await.unwrap();
        let running = Self {
            counter: test.start_in("web", "counter", COUNTER).await,
            nested: test.start_in("web/nested", "sleeps", "sleep 1000").await,
            limited: test.start_in("limited", "sleeps", "sleep 1000").await,
            exited: test.start_in("web", "exits", EXITS).await,
        };
        assert_eq!(test.output(running.exited, 0).await.len(), 1);
        assert_counted(&test.follow_until("web/counter", "20").await);
        running
    }

    async fn assert_adopted(&self, test: &CellNode, round: usize) {
        for (cell, name, pid) in [
            ("web", "counter", self.counter),
            ("web/nested", "sleeps", self.nested),
            ("limited", "sleeps", self.limited),
        ] {
            let status = test.executable(cell, name).await;
            let seen = (status.pid, status.state(), status.runs);
            assert_eq!(seen, (pid, ExecutableState::Running, 1), "{cell}/{name}");
            let events = published(&test.node, &format!("{cell}/{name}")).await;
            assert_eq!(events.len(), 1, "its start, once: {events:?}");
        }
        let status = test.executable("web", "exits").await;
        let seen = (status.pid, status.state(), status.exit_code);
        assert_eq!(seen, (self.exited, ExecutableState::Exited, 7));
        let lines = test.output(self.exited, 0).await;
        assert_eq!(lines.len(), 1);
        assert_eq!(lines[0].line, "exits");
        let events = published(&test.node, "web/exits").await;
        assert_eq!(events.len(), 2, "its start and its exit: {events:?}");

        let line = (60 + 40 * round).to_string();
        assert_counted(&test.follow_until("web/counter", &line).await);
        let limits = test.traces().cpu_limits_of("limited");
        assert!(
            matches!(limits, (Some(512), _) | (None, Some(_))),
            "{limits:?}"
        );
    }

    /// Starts, stops and frees, also through shims that the other build forked.
    async fn assert_usable(&self, test: &CellNode, round: usize) {
        let mut client = test.client().await;
        // In a cell of the first daemon.
        let pid = test.start_in("web", "again", "sh -c 'echo again'").await;
        let lines = test.output(pid, 0).await;
        assert_eq!(lines.len(), 1, "{lines:?}");
        let status = test.executable("web", "again").await;
        assert_eq!(status.runs, round as u64 + 1);
        let sleeper = format!("sleeper{round}");
        test.start_in("web/nested", &sleeper, "sleep 1000").await;
        client.stop("web/nested", &sleeper).await.unwrap();
        assert_terminated(&test.executable("web/nested", &sleeper).await);
        // In a cell of its own.
        test.allocate("own", &[]).await;
        test.start_in("own", "sleeps", "sleep 1000").await;
        client.free("own").await.unwrap();
        let left = test.list().await;
        assert_eq!(left.len(), 2, "limited and web: {left:?}");
    }
}

fn assert_terminated(status: &ExecutableStatus) {
    const SIGTERM: i32 = 15;
    let seen = (status.state(), status.signal);
    assert_eq!(seen, (ExecutableState::Exited, SIGTERM), "{status:?}");
}

const EXITS: &str = "sh -c 'echo exits; exit 7'";

/// The event journal and the daemon's log, as far as they went.
struct Journals {
    event_ids: Vec<String>,
    log: String,
}

impl Journals {
    async fn read(node: &TestNode) -> Self {
        let mut client = MachineServiceClient::new(node.connect_locally().await);
        let request = EventsRequest {
            tail_events: -1,
            until_now: true,
            ..EventsRequest::default()
        };
        let mut events = client.events(request).await.unwrap().into_inner();
        let mut event_ids = Vec::new();
        while let Some(event) = soon("the events", events.message()).await.unwrap() {
            event_ids.push(event.id);
        }
        let request = LogsRequest {
            id: "mainstay".to_owned(),
            tail_lines: -1,
            ..LogsRequest::default()
        };
        let mut lines = client.logs(request).await.unwrap().into_inner();
        let mut log = Vec::new();
        while let Some(data) = soon("the log", lines.message()).await.unwrap() {
            log.extend_from_slice(&data.bytes);
        }
        Self {
            event_ids,
            log: String::from_utf8(log).unwrap(),
        }
    }

    /// Asserts that another daemon reads everything and goes on from there.
    async fn assert_continued(self, node: &TestNode) -> Self {
        let now = Self::read(node).await;
        let known = self.event_ids.len();
        assert_eq!(now.event_ids[..known], self.event_ids[..]);
        assert!(now.event_ids.len() > known, "no new event");
        assert!(now.event_ids.is_sorted_by(|a, b| a < b), "ids are ordered");
        assert!(now.log.starts_with(&self.log), "the log lost its beginning");
        assert!(now.log.len() > self.log.len(), "no new line in the log");
        now
    }
}
