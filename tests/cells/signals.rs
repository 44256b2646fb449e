//! `GetPosixSignalsStream`: real signals, as the kernel of this machine traces them.

use std::cell::RefCell;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;

use mainstay_api::aurae::observe::v0::observe_service_client::ObserveServiceClient;
use mainstay_api::aurae::observe::v0::{
    GetPosixSignalsStreamRequest, GetPosixSignalsStreamResponse, Workload, WorkloadType,
};
use mainstay_testkit::{TestNode, binary, soon};
use rustix::fs::{AtFlags, Dir, Mode, OFlags, openat, unlinkat};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use rustix::process::{Pid, Signal, kill_process};
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

use super::cell_node::CellNode;

/// Runs until it is killed, whatever signal it is asked to end with.
const SLEEPER: &str = "sh -c 'trap : USR1 USR2; while :; do sleep 400 & wait; done'";

type Signals = Streaming<GetPosixSignalsStreamResponse>;

fn of_cell(name: &str) -> GetPosixSignalsStreamRequest {
    GetPosixSignalsStreamRequest {
        workload: Some(Workload {
            workload_type: WorkloadType::Cell.into(),
            id: name.to_owned(),
        }),
    }
}

async fn client(node: &TestNode) -> ObserveServiceClient<Channel> {
    ObserveServiceClient::new(node.connect_locally().await)
}

async fn try_trace(
    node: &TestNode,
    request: GetPosixSignalsStreamRequest,
) -> Result<Signals, Status> {
    let answer = client(node).await.get_posix_signals_stream(request).await;
    answer.map(tonic::Response::into_inner)
}

/// A stream of signals; `None` where the kernel does not offer it, which the node must say.
async fn trace(node: &TestNode, request: GetPosixSignalsStreamRequest) -> Option<Signals> {
    match try_trace(node, request).await {
        Ok(signals) => Some(signals),
        Err(status) => {
            assert_eq!(status.code(), Code::Unimplemented, "{status}");
            let said = status.message();
            assert!(
                said.starts_with("signals cannot be traced here: "),
                "{said}"
            );
            println!("skipped: {said}");
            None
        }
    }
}

/// Reads until this signal; returns those before it.
async fn until(signals: &mut Signals, pid: i32, number: i32) -> Vec<(i32, i32)> {
    let mut before = Vec::new();
    soon("the signal", async {
        loop {
            let answer = signals.message().await.unwrap().unwrap();
            let signal = answer.signal.unwrap();
            let seen = (signal.process_id, signal.signal);
            if seen == (pid, number) {
                return;
            }
            before.push(seen);
        }
    })
    .await;
    before
}

fn send(pid: i32, signal: Signal) {
    kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
}

/// The directory of tracing instances, by a mount that is attached nowhere.
fn tracing() -> rustix::io::Result<OwnedFd> {
    let context = fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    fsconfig_create(&context)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let root = fsmount(&context, flags, MountAttrFlags::empty())?;
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    openat(&root, "instances", flags, Mode::empty())
}

/// The tracing instances of a daemon.
fn instances(daemon: u32) -> Vec<String> {
    let names = Dir::read_from(tracing().unwrap()).unwrap().map(|entry| {
        let entry = entry.unwrap();
        entry.file_name().to_str().unwrap().to_owned()
    });
    let of_daemon =
        |name: &String| name.starts_with("mainstay-") && name.contains(&format!("-{daemon}-"));
    names.filter(of_daemon).collect()
}

/// Removes the instances of daemons that were killed with an open stream. Declared before the node,
/// so that it is dropped when the node is dead.
#[derive(Default)]
struct Swept(RefCell<Vec<u32>>);

impl Swept {
    fn add(&self, node: &TestNode) {
        self.0.borrow_mut().push(node.pid());
    }
}

impl Drop for Swept {
    fn drop(&mut self) {
        let Ok(tracing) = tracing() else { return };
        for daemon in self.0.take() {
            for name in instances(daemon) {
                let _ = unlinkat(&tracing, name, AtFlags::REMOVEDIR);
            }
        }
    }
}

#[tokio::test]
async fn a_cell_s_stream_has_its_signals_and_no_others() {
    let swept = Swept::default();
    let node = CellNode::start("signals-cell");
    swept.add(&node.node);
    for cell in ["one", "one/nested", "two"] {
        node.allocate(cell, &[]).await;
    }
    let one = node.start_in("one", "exe", SLEEPER).await;
    let nested = node.start_in("one/nested", "exe", SLEEPER).await;
    let two = node.start_in("two", "exe", SLEEPER).await;
    let Some(mut signals) = trace(&node.node, of_cell("one")).await else {
        return node.finish().await;
    };

    send(two, Signal::USR1);
    send(nested, Signal::USR1);
    send(one, Signal::USR1);
    let before = until(&mut signals, one, 10).await;
    let foreign = |seen: &&(i32, i32)| seen.0 == two || seen.0 == nested;
    assert_eq!(before.iter().find(foreign), None);

    // A process that the signal kills is gone when it is read.
    let mut client = node.client().await;
    client.stop("two", "exe").await.unwrap();
    client.stop("one", "exe").await.unwrap();
    let before = until(&mut signals, one, 15).await;
    assert_eq!(before.iter().find(foreign), None);
    drop(signals);
    node.finish().await;
}

#[tokio::test]
async fn short_lived_processes_that_start_later_are_traced_too() {
    let swept = Swept::default();
    let node = CellNode::start("signals-later");
    swept.add(&node.node);
    node.allocate("cell", &[]).await;
    let Some(mut signals) = trace(&node.node, of_cell("cell")).await else {
        return node.finish().await;
    };
    for round in 0..10 {
        let name = format!("exe{round}");
        let pid = node.start_in("cell", &name, "sh -c 'kill -USR2 $$'").await;
        until(&mut signals, pid, 12).await;
    }
    // Of a child, whose PID the shell says.
    let command = "sh -c 'sleep 400 & echo $!; kill -TERM $!; wait'";
    node.start_in("cell", "parent", command).await;
    soon("SIGTERM to the child", async {
        loop {
            let answer = signals.message().await.unwrap().unwrap();
            if answer.signal.unwrap().signal == 15 {
                return;
            }
        }
    })
    .await;
    drop(signals);
    node.finish().await;
}

#[tokio::test]
async fn a_process_s_name_cannot_forge_a_signal() {
    let swept = Swept::default();
    let node = CellNode::start("signals-name");
    swept.add(&node.node);
    let hostile = node.node.scratch().join("x\ncomm=a pid=1");
    std::os::unix::fs::symlink("/bin/sleep", &hostile).unwrap();
    node.allocate("cell", &[]).await;
    let Some(mut signals) = trace(&node.node, of_cell("cell")).await else {
        return node.finish().await;
    };
    let command = format!("'{}' 400", hostile.display());
    let pid = node.start_in("cell", "exe", &command).await;
    send(pid, Signal::USR1);
    let before = until(&mut signals, pid, 10).await;
    assert!(before.iter().all(|(seen, _)| *seen != 1), "{before:?}");
    drop(signals);
    node.finish().await;
}

#[tokio::test]
async fn without_a_workload_the_whole_node_is_traced() {
    let swept = Swept::default();
    let node = TestNode::start();
    swept.add(&node);
    let all = GetPosixSignalsStreamRequest::default();
    let Some(mut signals) = trace(&node, all).await else {
        return;
    };
    let mut child = std::process::Command::new("sleep")
        .arg("400")
        .spawn()
        .unwrap();
    let pid = child.id().cast_signed();
    send(pid, Signal::TERM);
    until(&mut signals, pid, 15).await;
    child.wait().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_are_bounded_and_leave_no_instance_behind() {
    let swept = Swept::default();
    let mut node = TestNode::start();
    swept.add(&node);
    let all = GetPosixSignalsStreamRequest::default();
    let Some(first) = trace(&node, all.clone()).await else {
        return;
    };
    let second = try_trace(&node, all.clone()).await.unwrap();
    assert_eq!(instances(node.pid()).len(), 2);
    let status = try_trace(&node, all.clone()).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status}");
    assert_eq!(instances(node.pid()).len(), 2);

    drop(first);
    node.wait_for_log("signal tracing ended");
    assert_eq!(instances(node.pid()).len(), 1);

    // A daemon that is killed leaves one, which the next removes.
    let killed = node.pid();
    node.kill();
    drop(second);
    assert_eq!(instances(killed).len(), 1);
    let mut node = node.restart();
    swept.add(&node);
    let third = try_trace(&node, all).await.unwrap();
    if node.pid() != killed {
        assert_eq!(instances(killed), Vec::<String>::new());
    }
    assert_eq!(instances(node.pid()).len(), 1);

    // One that is stopped leaves none.
    let stopped = node.pid();
    assert!(node.stop().success());
    assert_eq!(instances(stopped), Vec::<String>::new());
    drop(third);
}

#[tokio::test]
async fn bad_workloads_are_refused_with_the_reason() {
    let swept = Swept::default();
    let node = TestNode::start();
    swept.add(&node);
    let of = |kind: i32, id: &str| GetPosixSignalsStreamRequest {
        workload: Some(Workload {
            workload_type: kind,
            id: id.to_owned(),
        }),
    };
    let long = "x".repeat(100_000);
    for (request, code) in [
        (of(0, "cell"), Code::InvalidArgument),
        (of(77, "cell"), Code::InvalidArgument),
        (of(1, ""), Code::InvalidArgument),
        (of(1, "../x"), Code::InvalidArgument),
        (of(1, &long), Code::InvalidArgument),
        (of(1, "nosuch"), Code::NotFound),
        (of(2, "pod"), Code::Unimplemented),
        (of(3, "vm"), Code::Unimplemented),
    ] {
        let status = try_trace(&node, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().len() < 1000);
    }
}

#[tokio::test]
async fn a_daemon_that_may_not_trace_says_so() {
    let dir = tempfile::TempDir::new().unwrap();
    let program = dir.path().join("without-sys-admin");
    let text = format!(
        "#!/bin/sh\nexec setpriv --bounding-set -sys_admin --inh-caps -sys_admin {:?} \"$@\"\n",
        binary()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let swept = Swept::default();
    let node = TestNode::builder().program(&program).start();
    swept.add(&node);
    // Root may use a tracefs that the machine has mounted, all the same.
    if let Some(signals) = trace(&node, GetPosixSignalsStreamRequest::default()).await {
        drop(signals);
        assert!(std::path::Path::new("/sys/kernel/tracing/instances").exists());
    }
}
