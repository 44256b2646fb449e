//! Cells, their processes, output and exit codes outlive the daemon.

use std::fs;
use std::path::Path;

use mainstay_api::event;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{EventsRequest, ServiceStateEvent};
use mainstay_api::runtime::ExecutableState;
use mainstay_testkit::{TestNode, binary, soon};

use super::cell_node::CellNode;

pub(crate) const COUNTER: &str = "sh -c 'i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done'";

/// The messages of the events published about a service, in order.
pub(crate) async fn published(node: &TestNode, service: &str) -> Vec<String> {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let request = EventsRequest {
        tail_events: -1,
        until_now: true,
        ..EventsRequest::default()
    };
    let mut stream = client.events(request).await.unwrap().into_inner();
    let mut messages = Vec::new();
    while let Some(event) = soon("the events", stream.message()).await.unwrap() {
        let state = event
            .data
            .and_then(|data| event::unpack::<ServiceStateEvent>(&data).ok());
        messages.extend(
            state
                .filter(|state| state.service == service)
                .map(|state| state.message),
        );
    }
    messages
}

/// Asserts that the lines are the numbers from 1 on.
pub(crate) fn assert_counted(text: &str) {
    for (line, number) in text.lines().zip(1..) {
        assert_eq!(
            line,
            number.to_string(),
            "no line is missing, none is double"
        );
    }
}

/// A command that creates a FIFO and exits with this code once a line is written to it.
pub(crate) fn waits_for(pipe: &Path, code: i32) -> String {
    format!(
        "sh -c 'mkfifo {0}; echo ready; read word <{0}; echo $word; exit {code}'",
        pipe.display()
    )
}

#[tokio::test]
async fn a_killed_daemon_adopts_everything_on_restart() {
    let test = CellNode::start("killed");
    let pipe = test.node.scratch().join("go");
    test.allocate("web", &[]).await;
    let counter = test.start_in("web", "counter", COUNTER).await;
    let unseen = test.start_in("web", "unseen", &waits_for(&pipe, 42)).await;
    test.follow_until("web/unseen", "ready").await;
    assert_counted(&test.follow_until("web/counter", "20").await);

    let test = test.crash(|_| fs::write(&pipe, "unseen\n").unwrap(), TestNode::restart);
    let status = test.executable("web", "counter").await;
    assert_eq!(
        (status.pid, status.state()),
        (counter, ExecutableState::Running)
    );
    let lines = test.output(unseen, 0).await;
    let lines: Vec<&str> = lines.iter().map(|item| item.line.as_str()).collect();
    assert_eq!(lines, ["ready", "unseen"]);
    let status = test.executable("web", "unseen").await;
    assert_eq!(
        (status.state(), status.exit_code),
        (ExecutableState::Exited, 42)
    );
    assert_counted(&test.follow_until("web/counter", "80").await);

    // Published once, also when another daemon starts.
    let test = test.crash(|_| {}, TestNode::restart);
    let started = format!("started with pid {unseen}");
    assert_eq!(
        published(&test.node, "web/unseen").await,
        [started.as_str(), "exited with code 42"]
    );
    assert_eq!(
        published(&test.node, "web/counter").await,
        [format!("started with pid {counter}")]
    );
    test.finish().await;
}

#[tokio::test]
async fn a_daemon_starts_cells_after_its_binary_was_removed() {
    let builder = TestNode::builder();
    let program = builder.scratch().join("mainstay");
    fs::copy(binary(), &program).unwrap();
    let test = CellNode::start_as("removed", builder.program(&program));
    fs::remove_file(&program).unwrap();
    // The zygote is started with the first executable.
    for cell in ["first", "second"] {
        test.allocate(cell, &[]).await;
        let pid = test.start_in(cell, "says", "echo here").await;
        assert_eq!(test.output(pid, 0).await[0].line, "here");
    }
    test.finish().await;
}

#[tokio::test]
async fn unreadable_records_are_listed_and_freed_and_affect_no_other_cell() {
    let test = CellNode::start("damaged");
    test.allocate("good", &[]).await;
    let running = test.start_in("good", "x", "sleep 1000").await;
    let damage = |node: &TestNode| {
        let cells = node.state().join("cells");
        fs::create_dir(cells.join("cells/bad")).unwrap();
        fs::write(cells.join("cells/bad/cell.json"), b"{\"name\": \"ba").unwrap();
        fs::write(cells.join("executables/good_torn.json"), b"\0\0\0").unwrap();
    };
    let test = test.crash(damage, TestNode::restart);
    let status = test.executable("good", "x").await;
    assert_eq!(
        (status.pid, status.state()),
        (running, ExecutableState::Running)
    );
    let listed = test.list().await;
    let names = |unreadable: bool| -> Vec<&str> {
        let cells = listed
            .iter()
            .filter(|status| status.unreadable.is_empty() != unreadable);
        cells
            .map(|status| status.cell.as_ref().unwrap().name.as_str())
            .collect()
    };
    assert_eq!((names(false), names(true)), (vec!["good"], vec!["bad"]));
    test.node.wait_for_log("cells/bad");
    test.node.wait_for_log("good_torn.json");
    // Frees both; nothing of either is left.
    test.finish().await;
}
