//! The daemon's life: start, reload, stop, crash, and who may run beside it.

use std::os::unix::net::UnixDatagram;

use mainstay_api::event;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{EventsRequest, LogsRequest, ServiceStateEvent};
use mainstay_testkit::{TestNode, WAIT_TIMEOUT, require, soon};
use rustix::process::Signal;
use tokio::task::JoinHandle;
use tonic::Code;

/// Subscribes at once; the handle resolves when an event of the node's own service says `text`.
pub async fn wait_for_event(node: &TestNode, text: &str) -> JoinHandle<()> {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let mut events = client
        .events(EventsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let text = text.to_owned();
    tokio::spawn(async move {
        soon(&format!("the event {text:?}"), async {
            loop {
                let event = events.message().await.unwrap().expect("the stream goes on");
                // The first one carries no data.
                let Some(data) = event.data else { continue };
                let state: ServiceStateEvent = event::unpack(&data).unwrap();
                if state.message.contains(&text) {
                    return;
                }
            }
        })
        .await;
    })
}

#[test]
fn a_second_daemon_on_the_same_state_is_refused_and_the_first_stays() {
    let node = TestNode::start();
    let mut second = std::process::Command::new(mainstay_testkit::binary());
    second
        .args(["serve", "--listen", "127.0.0.1:0", "--state"])
        .arg(node.state());
    let output = second.output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains(&format!("pid {}", node.pid())), "{said}");
    assert!(said.contains("--state"), "says what to do: {said}");
    node.cli().run(["version"]).ok();
}

#[test]
fn a_port_that_is_taken_is_named() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (said, code) = TestNode::builder().arg("--listen").arg(&address).refused();
    assert_eq!(code, 1);
    assert!(
        said.contains(&address) && said.contains("--listen"),
        "{said}"
    );
}

#[tokio::test]
async fn a_stop_ends_streams_with_a_status_and_leaves_nothing_behind() {
    let mut node = TestNode::start();
    let mut client = MachineServiceClient::new(node.connect().await);
    let follow = LogsRequest {
        id: "mainstay".to_owned(),
        follow: true,
        tail_lines: -1,
        ..LogsRequest::default()
    };
    let mut logs = client.logs(follow).await.unwrap().into_inner();
    logs.message().await.unwrap().expect("the log has lines");
    let mut events = client
        .events(EventsRequest::default())
        .await
        .unwrap()
        .into_inner();

    node.signal(Signal::TERM);
    let ended = soon("the log stream to end", async {
        loop {
            if let Err(status) = logs.message().await {
                return status;
            }
        }
    });
    assert_eq!(ended.await.code(), Code::Unavailable);
    let ended = soon("the event stream to end", async {
        loop {
            if let Err(status) = events.message().await {
                return status;
            }
        }
    });
    assert_eq!(ended.await.code(), Code::Unavailable);
    assert!(node.wait().success());
    assert!(!node.socket().exists(), "the socket file is gone");
}

#[tokio::test]
async fn state_identity_and_clients_survive_a_restart() {
    let node = TestNode::start();
    let before = (
        node.ca(),
        std::fs::read(node.state().join("pki/node.crt")).unwrap(),
    );
    let alice = node.credentials("alice", &[mainstay_identity::Role::Reader]);
    let node = node.restart();
    let after = (
        node.ca(),
        std::fs::read(node.state().join("pki/node.crt")).unwrap(),
    );
    assert_eq!(before, after);
    MachineServiceClient::new(node.connect_as(&alice).await)
        .version(())
        .await
        .unwrap();
}

#[tokio::test]
async fn everything_logged_and_published_before_a_crash_is_kept() {
    let mut node = TestNode::start();
    for _ in 0..20 {
        MachineServiceClient::new(node.connect().await)
            .version(())
            .await
            .unwrap();
    }
    let before = node.cli().run(["logs", "mainstay"]).ok();
    let events = node
        .cli()
        .run(["events", "--tail", "-1", "-o", "json"])
        .ok();
    node.kill();
    let node = node.restart();
    let after = node.cli().run(["logs", "mainstay"]).ok();
    assert!(
        after.starts_with(&before),
        "what was read before is a prefix of what is read now"
    );
    let later = node
        .cli()
        .run(["events", "--tail", "-1", "-o", "json"])
        .ok();
    let ids = |text: &str| -> Vec<String> {
        text.lines()
            .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()["id"].to_string())
            .collect()
    };
    assert!(
        ids(&later).starts_with(&ids(&events)),
        "events are there, in order, once"
    );
}

#[tokio::test]
async fn a_reload_applies_reloadable_keys_and_a_broken_file_changes_nothing() {
    let node = TestNode::builder()
        .config("[log]\nlevel = 'info'\n")
        .start();
    let reloaded = wait_for_event(&node, "configuration reloaded").await;
    std::fs::write(node.config_file(), "names = ['later.example.org']\n").unwrap();
    let renewed = wait_for_event(&node, "node certificate renewed").await;
    node.signal(Signal::HUP);
    reloaded.await.unwrap();
    renewed.await.unwrap();
    let shown = node.cli().run(["pki", "show", "-o", "json"]).ok();
    assert!(
        shown.contains("later.example.org"),
        "the new name is in the certificate: {shown}"
    );
    MachineServiceClient::new(node.connect().await)
        .version(())
        .await
        .unwrap();

    std::fs::write(node.config_file(), "nmaes = []\n").unwrap();
    node.signal(Signal::HUP);
    // The reload has been handled when a later, good one is.
    let reloaded = wait_for_event(&node, "configuration reloaded").await;
    std::fs::write(node.config_file(), "names = []\n").unwrap();
    node.signal(Signal::HUP);
    reloaded.await.unwrap();
    MachineServiceClient::new(node.connect().await)
        .version(())
        .await
        .unwrap();
}

#[test]
fn the_service_manager_is_notified_of_ready_and_stopping() {
    let builder = TestNode::builder();
    let path = builder.scratch().join("notify.sock");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(WAIT_TIMEOUT)).unwrap();
    let mut node = builder
        .env("NOTIFY_SOCKET", path.display().to_string())
        .start();
    let heard = || {
        let mut buffer = [0; 256];
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..length]).into_owned()
    };
    assert!(heard().contains("READY=1"));
    node.signal(Signal::TERM);
    assert!(heard().contains("STOPPING=1"));
    assert!(node.wait().success());
}

#[test]
fn inherited_sockets_are_used() {
    use std::os::fd::AsRawFd;
    let builder = TestNode::builder();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // As a service manager does it: the socket is descriptor 3 and LISTEN_PID names the daemon,
    // which the shell becomes by exec.
    let fd = listener.as_raw_fd();
    rustix::io::fcntl_setfd(&listener, rustix::io::FdFlags::empty()).unwrap();
    // Of any number: a small shell knows descriptors of one digit only.
    let mut shell = std::process::Command::new("bash");
    shell.arg("-c").arg(format!(
        "exec 3<&{fd}; export LISTEN_PID=$$ LISTEN_FDS=1; exec {} serve --state {}",
        mainstay_testkit::binary().display(),
        builder.state().display(),
    ));
    shell.stdout(std::process::Stdio::piped());
    let mut daemon = shell.spawn().unwrap();
    let mut greeting = String::new();
    let mut stdout = std::io::BufReader::new(daemon.stdout.take().unwrap());
    std::io::BufRead::read_line(&mut stdout, &mut greeting).unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(
        greeting.contains(&format!("serves on {address}")),
        "{greeting}"
    );
}

#[test]
fn an_ordinary_user_can_run_a_node() {
    // Only root can start a process of another user.
    require!(Root);
    let home = tempfile::Builder::new()
        .prefix("mainstay-user-")
        .tempdir()
        .unwrap();
    std::os::unix::fs::chown(home.path(), Some(65534), Some(65534)).unwrap();
    // The binary may stand where other users cannot look.
    let binary = home.path().join("mainstay");
    std::fs::copy(mainstay_testkit::binary(), &binary).unwrap();
    let run = |args: &[&str]| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(&binary);
        command
            .args(args)
            .env_clear()
            .env("HOME", home.path())
            .uid(65534)
            .gid(65534);
        command
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::piped());
        command
    };
    let mut daemon = run(&["serve", "--listen", "127.0.0.1:0"]).spawn().unwrap();
    let mut stdout = std::io::BufReader::new(daemon.stdout.take().unwrap());
    let mut greeting = String::new();
    while !greeting.contains("ready in") {
        let read = std::io::BufRead::read_line(&mut stdout, &mut greeting).unwrap();
        assert!(read > 0, "it ended: {greeting}");
    }
    let output = run(&["version"]).output().unwrap();
    daemon.kill().unwrap();
    daemon.wait().unwrap();
    assert!(greeting.contains(".local/state/mainstay"), "{greeting}");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}
