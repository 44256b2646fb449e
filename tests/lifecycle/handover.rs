//! The daemon that is executed in place: its sockets, its streams, the service manager, and a binary
//! that cannot be executed.

use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use mainstay_api::machine::EventsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::{
    Cli, ServerProcess, TestNode, WAIT_TIMEOUT, binary, connect_tls, connect_unix, require, soon,
};
use tonic::Code;

use super::{Subject, serving_pid};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_refused_while_the_daemon_is_replaced() {
    require!(Root);
    let subject = Subject::start("sockets");
    let (done, calls) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicUsize::new(0)),
    );
    let (admin, listen) = (subject.node.admin(), subject.node.listen());
    let socket = subject.node.socket();
    let mut clients = Vec::new();
    for number in 0..4 {
        let (done, calls) = (Arc::clone(&done), Arc::clone(&calls));
        let (admin, socket) = (admin.clone(), socket.clone());
        clients.push(tokio::spawn(async move {
            while !done.load(Ordering::Relaxed) {
                let channel = match number % 2 {
                    0 => connect_tls(listen, &admin).await,
                    _ => connect_unix(&socket).await,
                };
                // A connection that was accepted just before the drain ends without a handshake;
                // one is never refused.
                let channel = match channel {
                    Ok(channel) => channel,
                    Err(error) => {
                        let text = format!("{error:?}");
                        assert!(!text.contains("ConnectionRefused"), "{text}");
                        assert!(!text.contains("NotFound"), "{text}");
                        continue;
                    }
                };
                match MachineServiceClient::new(channel).version(()).await {
                    Ok(_) => {
                        calls.fetch_add(1, Ordering::Relaxed);
                    }
                    Err(status) => assert!(
                        matches!(
                            status.code(),
                            Code::Unavailable | Code::Unknown | Code::Cancelled
                        ),
                        "{status:?}"
                    ),
                }
            }
        }));
    }
    for _ in 0..5 {
        let before = calls.load(Ordering::Relaxed);
        subject.node.cli().run(["reboot"]).ok();
        soon("calls after the reboot", async {
            while calls.load(Ordering::Relaxed) < before + 8 {
                tokio::task::yield_now().await;
            }
        })
        .await;
    }
    done.store(true, Ordering::Relaxed);
    for client in clients {
        soon("the client", client).await.unwrap();
    }
}

#[tokio::test]
async fn streams_end_with_a_status_and_resume_without_a_gap() {
    require!(Root);
    let subject = Subject::start("streams");
    let mut machine = subject.machine().await;
    let request = EventsRequest {
        tail_events: 1,
        ..EventsRequest::default()
    };
    let mut events = machine.events(request).await.unwrap().into_inner();
    let mut seen = String::new();
    let actor = subject.reboot().await;
    let status = soon("the end of the stream", async {
        loop {
            match events.message().await {
                Ok(Some(event)) if !event.id.is_empty() => seen = event.id,
                Ok(_) => {}
                Err(status) => return status,
            }
        }
    });
    let status = status.await;
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("resumed"), "{status}");
    let request = EventsRequest {
        tail_id: seen.clone(),
        ..EventsRequest::default()
    };
    let mut events = subject
        .machine()
        .await
        .events(request)
        .await
        .unwrap()
        .into_inner();
    let mut number = u64::from_str_radix(&seen[..16], 16).unwrap();
    soon("the end of the reboot", async {
        loop {
            let event = events.message().await.unwrap().unwrap();
            if event.id.is_empty() {
                continue;
            }
            number += 1;
            assert_eq!(
                u64::from_str_radix(&event.id[..16], 16),
                Ok(number),
                "no gap"
            );
            let stop = super::words(&event).is_some_and(|it| it == "sequence reboot STOP");
            if stop && event.actor_id == actor {
                return;
            }
        }
    })
    .await;
}

#[test]
fn the_service_manager_sees_a_reload() {
    require!(Root);
    let builder = TestNode::builder();
    let path = builder.scratch().join("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let node = builder
        .env("NOTIFY_SOCKET", path.display().to_string())
        .start();
    let heard = || {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(heard().contains("READY=1"));
    node.cli().run(["reboot"]).ok();
    let reloading = heard();
    assert!(
        reloading.contains("RELOADING=1") && reloading.contains("MONOTONIC_USEC="),
        "{reloading}"
    );
    assert!(heard().contains("READY=1"));
}

/// Copies the binary in a process of its own: a file that this one has open for writing, or a child
/// that it is just forking for another test, cannot be executed.
fn copy_binary(to: &Path) {
    let mut copy = std::process::Command::new("cp");
    let status = copy.arg(binary()).arg(to).status().unwrap();
    assert!(status.success());
}

#[test]
fn a_binary_that_cannot_be_executed_leaves_the_running_one() {
    require!(Root);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("mainstay");
    copy_binary(&program);
    let node = TestNode::builder().program(&program).start();
    let pid = node.pid();
    // As a package update that went wrong leaves it.
    std::fs::remove_file(&program).unwrap();
    std::fs::write(&program, "not a program").unwrap();
    let cli = Cli::of(&binary(), node.scratch());
    cli.env("MAINSTAY_STATE", node.state()).run(["reboot"]).ok();
    assert_eq!(serving_pid(&node.state()), pid.to_string());
    let stderr = node.stderr();
    assert!(stderr.contains("cannot execute"), "{stderr}");
    assert!(stderr.contains("the daemon was not replaced"), "{stderr}");
}

#[test]
fn an_updated_binary_is_what_a_reboot_executes() {
    require!(Root);
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("mainstay");
    copy_binary(&program);
    let node = TestNode::builder().program(&program).start();
    let update = directory.path().join("update");
    copy_binary(&update);
    std::fs::rename(&update, &program).unwrap();
    node.cli().run(["reboot"]).ok();
    let running = std::fs::read_link(format!("/proc/{}/exe", node.pid())).unwrap();
    assert_eq!(running, program, "and not the deleted file");
}

/// Also the one whose zygote the daemon before has started.
#[tokio::test]
async fn a_replaced_daemon_leaves_no_zombie_and_runs_cells() {
    require!(Root);
    let subject = Subject::start("zombies");
    subject.run("one", "sleep 1000").await;
    subject.node.cli().run(["reboot"]).ok();
    subject.run("two", "sleep 1000").await;
    let children = format!("/proc/{0}/task/{0}/children", subject.node.pid());
    for child in std::fs::read_to_string(children)
        .unwrap()
        .split_whitespace()
    {
        let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap();
        assert!(!stat.contains(") Z "), "{stat}");
    }
}

/// As in a container: the daemon is PID 1 of its PID namespace, and not of the machine.
#[test]
fn pid_1_of_a_container_reboots_in_place() {
    require!(Root);
    let builder = TestNode::builder();
    let serve = builder.command();
    let mut command = std::process::Command::new("unshare");
    command
        .args(["--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(serve.get_program())
        .args(serve.get_args());
    let stderr = builder.scratch().join("stderr");
    let server = ServerProcess::start(command, &stderr, |line| line.contains("ready in"));
    let cli = || Cli::of(&binary(), builder.scratch()).env("MAINSTAY_STATE", builder.state());
    assert_eq!(serving_pid(&builder.state()), "1");
    cli().run(["reboot"]).ok();
    assert_eq!(serving_pid(&builder.state()), "1");
    let version = cli().run(["version", "-o", "json"]).json();
    assert_eq!(version["server"][0]["platform"]["name"], "container");
    drop(server);
}
