//! How cells and shims end, and what a cell sees of its own network.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay_api::os::RestartRequest;
use mainstay_api::os::os_service_client::OsServiceClient;
use mainstay_api::runtime::{ExecutableState, Namespace};
use mainstay_identity::Role;
use mainstay_testkit::{TestNode, soon};
use rustix::process::{Signal, kill_process};
use tonic::Code;

use super::cell_node::CellNode;

const BOTH: &[Namespace] = &[Namespace::Pid, Namespace::Mount];

#[tokio::test]
async fn a_free_leaves_no_zombie_where_the_pid_namespace_is_shared() {
    let test = CellNode::start("reaped");
    let mut client = test.client().await;
    for share in [BOTH, &[]] {
        for _ in 0..3 {
            test.allocate("web", share).await;
            // Children, and orphans in sessions of their own.
            let command =
                "sh -c 'for i in 1 2 3 4 5 6 7 8; do sleep 1000 & setsid sleep 1000 & done;
                echo ready; wait'";
            test.start_in("web", "many", command).await;
            test.follow_until("web/many", "ready").await;
            let pids = test.traces().processes_of("web", "many");
            assert!(pids.len() > 8, "{pids:?}");
            client.free("web").await.unwrap();
            let left: Vec<String> = pids
                .iter()
                .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/status")).ok())
                .collect();
            assert!(left.is_empty(), "{left:?}");
        }
    }
    test.finish().await;
}

#[tokio::test]
async fn a_start_in_the_moment_its_shim_dies_uses_a_new_shim() {
    let test = CellNode::start("dying-shim");
    let mut client = test.client().await;
    test.allocate("web", &[]).await;
    for round in 0..5 {
        // The more processes a namespace has, the longer its init process takes to exit.
        let many = format!("many{round}");
        let command = "sh -c 'for i in $(seq 100); do sleep 1000 & done; echo ready; wait'";
        test.start_in("web", &many, command).await;
        test.follow_until(&format!("web/{many}"), "ready").await;
        kill_process(test.shim_pid("web").await, Signal::KILL).unwrap();
        let next = format!("next{round}");
        let started = soon("the start", client.start("web", &next, "sleep 1000")).await;
        started.unwrap();
        let status = test.executable("web", &many).await;
        assert_eq!(status.state(), ExecutableState::Lost);
    }
    test.finish().await;
}

#[tokio::test]
async fn a_free_finds_half_begun_executables_and_damaged_records() {
    let test = CellNode::start("half-begun");
    test.allocate("web", &[]).await;
    test.allocate("web-2", &[]).await;
    test.start_in("web", "nap", "sleep 1000").await;
    let speaks = "sh -c 'echo ready; exec sleep 1000'";
    test.start_in("web-2", "nap", speaks).await;
    test.follow_until("web-2/nap", "ready").await;
    let files = |node: &TestNode| -> (PathBuf, PathBuf) {
        let cells = node.state().join("cells");
        (cells.join("executables"), cells.join("logs"))
    };
    // What a shim leaves that is killed while it starts something, and a damaged disk.
    let damage = |node: &TestNode| {
        let (records, logs) = files(node);
        fs::create_dir(logs.join("web_half")).unwrap();
        fs::write(records.join("web_damaged.json"), "{").unwrap();
    };
    let test = test.crash(damage, TestNode::restart);
    let mut client = test.client().await;
    client.free("web").await.unwrap();
    let (records, logs) = files(&test.node);
    let names = |directory: &Path| -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    };
    assert_eq!(names(&records), ["web-2_nap.json"]);
    assert_eq!(names(&logs), ["web-2_nap"]);
    test.finish().await;
}

#[tokio::test]
async fn a_cell_with_its_own_network_sees_only_its_own_devices() {
    let test = CellNode::start("own-sysfs");
    let look = "sh -c 'ls /sys/class/net; ls -d /sys/fs/cgroup; touch /sys/x 2>/dev/null && echo writable'";
    test.allocate("own", &[]).await;
    let pid = test.start_in("own", "look", look).await;
    let lines = test.output(pid, 0).await;
    let lines: Vec<&str> = lines.iter().map(|item| item.line.as_str()).collect();
    assert_eq!(lines, ["lo", "/sys/fs/cgroup"]);
    // One that shares the host's sees those of the host.
    test.allocate("shared", &[Namespace::Network]).await;
    let pid = test.start_in("shared", "look", "ls /sys/class/net").await;
    let lines = test.output(pid, 0).await;
    let mut outside: Vec<String> = fs::read_dir("/sys/class/net")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    outside.sort();
    // Other tests create devices meanwhile.
    assert!(outside.iter().any(|device| device == "lo"));
    assert!(lines.iter().any(|item| item.line == "lo"));
    test.finish().await;
}

#[tokio::test]
async fn an_operator_may_not_restart_an_executable_of_a_cell() {
    let test = CellNode::start("restart-role");
    test.allocate("web", &[]).await;
    let pid = test.start_in("web", "nap", "sleep 1000").await;
    let request = |namespace: &str| RestartRequest {
        namespace: namespace.to_owned(),
        id: "web/nap".to_owned(),
        ..RestartRequest::default()
    };
    let operator = test.node.credentials("operator", &[Role::Operator]);
    let mut operator = OsServiceClient::new(test.node.connect_as(&operator).await);
    let status = operator.restart(request("mainstay")).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied, "{status}");
    assert!(status.message().contains("os:admin"), "{status}");
    let foreign = operator.restart(request("k8s.io")).await.unwrap_err();
    assert_ne!(foreign.code(), Code::PermissionDenied, "{foreign}");
    assert_eq!(test.executable("web", "nap").await.pid, pid);
    let mut admin = OsServiceClient::new(test.node.connect().await);
    admin.restart(request("mainstay")).await.unwrap();
    assert_ne!(test.executable("web", "nap").await.pid, pid);
    test.finish().await;
}
