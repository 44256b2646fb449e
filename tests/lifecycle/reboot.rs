//! Reboot and shutdown on platform "container", and who may do it when.

use mainstay_api::machine::reboot_request::Mode;
use mainstay_api::machine::{RebootRequest, ShutdownRequest};
use mainstay_api::runtime::ExecutableState;
use mainstay_testkit::require;
use tonic::Code;

use super::{Subject, count, phases, serving_pid};

const REBOOT_PHASES: [&str; 5] = [
    "stopEverything",
    "umount",
    "unmountSystem",
    "unmountBind",
    "reboot",
];

#[tokio::test]
async fn a_reboot_stops_what_runs_and_executes_the_daemon_in_place() {
    require!(Root);
    let subject = Subject::start("reboot");
    subject.run("web", "sleep 1000").await;
    subject.run("db", "sleep 1000").await;
    let pid = subject.node.pid();
    let said = subject.node.cli().run(["reboot"]).ok();
    assert_eq!(said, "rebooted\n");
    assert_eq!(serving_pid(&subject.node.state()), pid.to_string());
    // Cells stay, as a machine keeps its disks; what ran in them has ended.
    for (cell, state) in subject.programs().await {
        assert_ne!(state, ExecutableState::Running, "{cell}");
    }
    assert_eq!(subject.cells().await.list().await.unwrap().len(), 2);
    let again = subject.node.cli().run(["reboot", "-o", "json"]).json();
    let actor = again[0]["actor_id"].as_str().unwrap();
    assert_eq!(again[0]["result"], "done");
    let events = subject.events(actor).await;
    assert_eq!(phases(&events), REBOOT_PHASES, "{events:#?}");
    for event in [
        "task stopAllCells STOP",
        "task reboot START",
        "task reboot STOP",
    ] {
        assert_eq!(count(&events, event), 1, "{event} in {events:#?}");
    }
    assert_eq!(events.first().unwrap(), "sequence reboot START");
    assert_eq!(events.last().unwrap(), "sequence reboot STOP");
    assert_eq!(count(&events, "sequence reboot STOP"), 1);
}

#[tokio::test]
async fn a_crash_looping_program_does_not_hold_up_a_reboot() {
    require!(Root);
    let subject = Subject::start("loop");
    subject.run("web", "sh -c 'exit 1'").await;
    subject.node.cli().run(["reboot"]).ok();
}

#[tokio::test]
async fn a_second_operator_is_refused_naming_the_first_and_force_goes_through() {
    require!(Root);
    let subject = Subject::start_stubborn("busy").await;
    let first = subject.reboot().await;
    subject.wait_for(&first, "task stopAllCells START").await;
    let alice = subject
        .node
        .credentials("alice", &[mainstay_identity::Role::Operator]);
    let channel = subject.node.connect_as(&alice).await;
    let mut alice =
        mainstay_api::machine::machine_service_client::MachineServiceClient::new(channel);
    for refused in [
        alice.reboot(RebootRequest::default()).await.map(drop),
        alice.shutdown(ShutdownRequest::default()).await.map(drop),
    ] {
        let status = refused.unwrap_err();
        assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
        for word in ["sequence reboot", &first, "uid 0"] {
            assert!(status.message().contains(word), "{word}: {status}");
        }
    }
    let said = subject.node.cli().run(["reboot"]).failed(1);
    assert!(said.contains(&first), "{said}");

    let forced = RebootRequest {
        mode: Mode::Force.into(),
    };
    let forced = alice.reboot(forced).await.unwrap().into_inner().messages;
    let forced = &forced[0].actor_id;
    subject.wait_for_end(forced, "sequence reboot STOP").await;
    let preempted = subject.events(&first).await;
    let last = preempted.last().unwrap();
    assert!(
        last.contains("NOOP preempted by forced sequence reboot") && last.contains(forced.as_str()),
        "{last}"
    );
    assert!(last.contains("alice"), "{last}");
}

#[tokio::test]
async fn a_shutdown_ends_everything_and_exits_with_0() {
    require!(Root);
    let mut subject = Subject::start("shutdown");
    subject.run("web", "sleep 1000").await;
    let said = subject.node.cli().run(["shutdown", "-o", "json"]).json();
    assert_eq!(said[0]["result"], "done");
    assert!(subject.node.wait().success());
    assert!(!subject.node.socket().exists());
    assert_eq!(subject.processes(), "", "no shim is left");
    let subject = Subject {
        node: subject.node.restart(),
        ..subject
    };
    let actor = said[0]["actor_id"].as_str().unwrap();
    let events = subject.events(actor).await;
    let wanted = [
        "stopEverything",
        "umount",
        "unmountSystem",
        "unmountBind",
        "shutdown",
    ];
    assert_eq!(phases(&events), wanted, "{events:#?}");
    assert_eq!(events.last().unwrap(), "sequence shutdown STOP");
    for (cell, state) in subject.programs().await {
        assert_ne!(state, ExecutableState::Running, "{cell}");
    }
}

#[tokio::test]
async fn no_wait_returns_with_the_actor_of_the_answer() {
    require!(Root);
    let subject = Subject::start_stubborn("no-wait").await;
    let said = subject
        .node
        .cli()
        .run(["reboot", "--no-wait", "-o", "json"])
        .json();
    assert_eq!(said[0]["result"], "started");
    let actor = said[0]["actor_id"].as_str().unwrap().to_owned();
    subject.wait_for(&actor, "sequence reboot START").await;
    let output = subject
        .node
        .cli()
        .run(["shutdown", "--wait-timeout", "1ms", "--force"]);
    assert_eq!(output.code, 9, "{}", output.stderr);
}
