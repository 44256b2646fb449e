//! Calls that wait for others in the same cell, and whose caller is gone before their turn.

use std::time::Duration;

use mainstay_api::runtime::{Executable, ExecutableState, StartCellRequest, StopCellRequest};
use tonic::{Code, Request, Status};

use super::cell_node::CellNode;
use mainstay_testkit::soon;

/// Exits and leaves a process behind that reports SIGTERM and lives on: a Stop then takes its whole
/// grace period, during which the executable is not running and cannot be started.
const LEAVES_A_PROCESS: &str =
    "sh -c '(trap \"echo stopping\" TERM; echo ready; while :; do sleep 0.1; done) & exit 0'";
const GRACE_SECONDS: i64 = 2;
const CALL_TIMEOUT: Duration = Duration::from_millis(200);

fn start_again() -> StartCellRequest {
    StartCellRequest {
        executable: Some(Executable {
            name: "left".to_owned(),
            command: "sleep 1000".to_owned(),
            cell_name: "cell".to_owned(),
            ..Executable::default()
        }),
    }
}

/// Lets `start` wait behind a Stop, and asserts that it has no effect once that is done.
async fn assert_never_starts(test: CellNode, start: impl AsyncFnOnce(&CellNode)) {
    test.allocate("cell", &[]).await;
    test.start_in("cell", "left", LEAVES_A_PROCESS).await;
    test.follow_until("cell/left", "ready").await;
    soon("the executable to exit", async {
        while test.executable("cell", "left").await.state() == ExecutableState::Running {}
    })
    .await;
    let mut cells = test.cells().await;
    let stop = tokio::spawn(async move {
        let request = StopCellRequest {
            cell_name: "cell".to_owned(),
            executable_name: "left".to_owned(),
            grace: Some(prost_types::Duration {
                seconds: GRACE_SECONDS,
                nanos: 0,
            }),
            ..StopCellRequest::default()
        };
        cells.stop(request).await
    });
    test.follow_until("cell/left", "stopping").await;

    start(&test).await;
    assert!(!stop.is_finished(), "the call was over before its turn");
    soon("the stop", stop).await.unwrap().unwrap();
    // A start that still waited has its turn before this one.
    test.start_in("cell", "other", "true").await;
    let left = test.executable("cell", "left").await;
    assert_eq!((left.runs, left.state()), (1, ExecutableState::Exited));
    test.finish().await;
}

#[tokio::test]
async fn a_start_whose_deadline_has_passed_never_runs() {
    let test = CellNode::start("deadline");
    assert_never_starts(test, async |test| {
        let mut request = Request::new(start_again());
        request.set_timeout(CALL_TIMEOUT);
        let status: Status = test.cells().await.start(request).await.unwrap_err();
        // Either side may notice first.
        let code = status.code();
        let timed_out = matches!(code, Code::DeadlineExceeded | Code::Cancelled);
        assert!(timed_out, "{status}");
    })
    .await;
}

#[tokio::test]
async fn a_start_whose_client_has_gone_never_runs() {
    let test = CellNode::start("gone");
    assert_never_starts(test, async |test| {
        let mut cells = test.cells().await;
        let started = tokio::time::timeout(CALL_TIMEOUT, cells.start(start_again())).await;
        assert!(started.is_err(), "{started:?}");
    })
    .await;
}
