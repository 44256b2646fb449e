//! A state directory that cannot be written: read-only, or full.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{LogsRequest, RebootRequest};
use mainstay_testkit::{PrivateMounts, TestNode, require, soon};
use rustix::process::Signal;

use super::{ask_version, assert_unharmed};
use crate::daemon::wait_for_event;

const KIB: u32 = 1024;

/// Takes all the room there is.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let mut file = File::create(&path).unwrap();
    for size in [4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
    path
}

#[test]
fn a_read_only_state_directory_is_refused_with_the_reason() {
    require!(Root);
    for used_before in [false, true] {
        let builder = TestNode::builder();
        let state = builder.state();
        let mounts = PrivateMounts::tmpfs(&state, KIB);
        let mut builder = builder.inside(mounts.namespace());
        if used_before {
            builder = builder.start().into_builder();
        }
        mounts.remount_read_only(&state);
        let (said, code) = builder.refused();
        assert_eq!(code, 1, "{said}");
        assert!(said.contains(state.to_str().unwrap()), "{said}");
        assert!(said.contains("writable file system"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_first_start_on_a_full_disk_is_refused_and_works_later() {
    require!(Root);
    let builder = TestNode::builder();
    let mounts = PrivateMounts::tmpfs(&builder.state(), KIB);
    let state = mounts.seen(&builder.state());
    let builder = builder.inside(mounts.namespace());
    let filler = fill(&state);
    let (said, code) = builder.refused();
    assert_eq!(code, 1, "{said}");
    assert!(said.contains(builder.state().to_str().unwrap()), "{said}");
    assert!(said.contains("room") || said.contains("space"), "{said}");
    std::fs::remove_file(filler).unwrap();
    let node = builder.start();
    node.cli().run(["version"]).ok();
}

/// On the same address, so that nothing has to be written that was not there before.
#[tokio::test]
async fn a_node_restarts_on_a_full_disk() {
    require!(Root);
    let builder = TestNode::builder().config("# the address follows\n");
    let mounts = PrivateMounts::tmpfs(&builder.state(), KIB);
    let node = builder.inside(mounts.namespace()).start();
    let ca = node.ca();
    let listen = format!("# as before\nlisten = '{}'\n", node.listen());
    std::fs::write(node.config_file(), listen).unwrap();
    let state = node.state();
    let builder = node.into_builder();
    let filler = fill(&state);
    let node = builder.start();
    assert_eq!(node.ca(), ca);
    ask_version(node.connect().await).await;
    assert_unharmed(&node).await;
    std::fs::remove_file(filler).unwrap();
    assert_log_goes_on(&node).await;
}

/// A client that waits for the next lines sees the one of its own call.
async fn assert_log_goes_on(node: &TestNode) {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let follow = LogsRequest {
        id: "mainstay".to_owned(),
        follow: true,
        tail_lines: 0,
        ..LogsRequest::default()
    };
    let mut lines = client.logs(follow).await.unwrap().into_inner();
    client.version(()).await.unwrap();
    let mut text = String::new();
    soon("the line of the call", async {
        while !text.contains("/Version") {
            let data = lines.message().await.unwrap().expect("it goes on");
            text.push_str(std::str::from_utf8(&data.bytes).unwrap());
        }
    })
    .await;
}

// Several threads, so that the clients still answer while the test waits for the stop.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_survives_a_full_disk_and_recovers() {
    require!(Root);
    let builder = TestNode::builder().config("[log]\nlevel = 'info'\n");
    let mounts = PrivateMounts::tmpfs(&builder.state(), KIB);
    let node = builder.inside(mounts.namespace()).start();
    let state = node.state();
    let filler = fill(&state);
    // Far more lines than fit into what the last page of the log has left, and events too.
    let channel = node.connect().await;
    let mut machine = MachineServiceClient::new(channel);
    for _ in 0..200 {
        // Audited calls are not folded: each is a line.
        machine
            .reboot(RebootRequest { mode: -1 })
            .await
            .unwrap_err();
    }
    for _ in 0..3 {
        node.signal(Signal::HUP);
        assert_unharmed(&node).await;
    }
    std::fs::remove_file(filler).unwrap();

    assert_log_goes_on(&node).await;
    let reloaded = wait_for_event(&node, "configuration reloaded").await;
    node.signal(Signal::HUP);
    reloaded.await.unwrap();

    // Nothing that was kept is damaged: every line is one, and a new start reads it all.
    let log = std::fs::read_to_string(state.join("logs/mainstay/current")).unwrap();
    let torn: Vec<&str> = log
        .lines()
        .filter(|line| !line.contains(" stdout F ") && !line.contains(" stderr F "))
        .collect();
    assert!(
        torn.len() <= 1,
        "at most the line at which it filled up: {torn:?}"
    );
    assert!(log.contains("log lines were lost count="), "{log}");
    let node = node.restart();
    let events = node
        .cli()
        .run(["events", "--tail", "-1", "-o", "json"])
        .ok();
    let ids: Vec<String> = events
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].to_string())
        .collect();
    assert!(ids.len() >= 6 && ids.is_sorted(), "{ids:?}");
    assert_unharmed(&node).await;
}
