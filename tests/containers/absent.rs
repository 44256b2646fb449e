//! No runtime, one that went away, one that hangs; and callers who ask for nonsense.

use std::time::{Duration, Instant};

use mainstay_api::machine::LogsRequest;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::require;
use tonic::Code;

use super::*;

#[tokio::test]
async fn without_a_runtime_the_node_works_and_says_what_is_missing() {
    let node = TestNode::builder()
        .config("[containers]\ncontainerd = '/nonexistent/containerd.sock'\ncri = '/nonexistent/cri.sock'\n\n[containers.namespaces]\nsystem = '/nonexistent/system.sock'\n")
        .start();
    let channel = node.connect().await;
    for (namespace, driver, socket, option) in [
        (
            "default",
            CONTAINERD,
            "/nonexistent/containerd.sock",
            "containers.containerd",
        ),
        (
            "system",
            CONTAINERD,
            "/nonexistent/system.sock",
            "containers.namespaces.system",
        ),
        ("k8s.io", CRI, "/nonexistent/cri.sock", "containers.cri"),
        ("", CONTAINERD, "/nonexistent/", "containers."),
    ] {
        let listed = containers(&channel, namespace, driver).await.unwrap_err();
        let measured = stats(&channel, namespace, driver).await.unwrap_err();
        let restarted = restart(&channel, namespace, "x", driver).await.unwrap_err();
        for status in [listed, measured, restarted] {
            assert_eq!(status.code(), Code::Unavailable, "{status}");
            assert!(status.message().contains(socket), "{status}");
            assert!(status.message().contains(option), "{status}");
            assert!(status.message().contains("No such file"), "{status}");
        }
    }
    let own = containers(&channel, "mainstay", CONTAINERD).await.unwrap();
    assert_eq!(own, [], "answered by the node itself");
    let said = node.cli().run(["containers", "-k"]).failed(3);
    assert!(said.contains("/nonexistent/cri.sock"), "{said}");
}

#[tokio::test]
async fn a_runtime_may_go_and_come_back() {
    require!(Containerd);
    let mut containerd = TestContainerd::start();
    containerd.run_container("web", &["--null-io"], &["sleep", "1000000"]);
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let before = containers(&channel, "default", CONTAINERD).await.unwrap();
    assert_eq!(by_id(&before, "web").status, "RUNNING");
    containerd.stop();
    let status = containers(&channel, "default", CONTAINERD)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    let socket = containerd.socket();
    assert!(
        status.message().contains(socket.to_str().unwrap()),
        "{status}"
    );
    assert!(
        status.message().contains("containers.containerd"),
        "{status}"
    );
    let status = containers(&channel, "k8s.io", CRI).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    containerd.run();
    let after = containers(&channel, "default", CONTAINERD).await.unwrap();
    assert_eq!(after, before, "what ran went on");
    assert_eq!(containers(&channel, "k8s.io", CRI).await.unwrap(), []);
}

#[tokio::test]
async fn a_runtime_that_never_answers_times_out() {
    let scratch = tempfile::tempdir().unwrap();
    let socket = scratch.path().join("hung.sock");
    // Connections are taken up by the kernel, and nobody ever reads them.
    let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let config = format!("[containers]\ncontainerd = {socket:?}\ntimeout = '200ms'\n");
    let node = TestNode::builder().config(&config).start();
    let channel = node.connect().await;
    for (namespace, driver) in [("default", CONTAINERD), ("", CONTAINERD), ("k8s.io", CRI)] {
        let began = Instant::now();
        let status = containers(&channel, namespace, driver).await.unwrap_err();
        assert_eq!(status.code(), Code::DeadlineExceeded, "{status}");
        assert!(status.message().contains("within 0.2 s"), "{status}");
        assert!(status.message().contains("hung.sock"), "{status}");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    }
    MachineServiceClient::new(channel)
        .version(())
        .await
        .expect("nothing else is held up");
}

#[tokio::test]
async fn a_socket_of_another_protocol_is_distinguished_from_a_missing_one() {
    let other = TestNode::start();
    let config = format!("[containers]\ncri = {:?}\n", other.socket());
    let node = TestNode::builder().config(&config).start();
    let channel = node.connect().await;
    let status = containers(&channel, "k8s.io", CRI).await.unwrap_err();
    assert_eq!(status.code(), Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("does not speak CRI"), "{status}");
    assert!(status.message().contains("containers.cri"), "{status}");
}

#[tokio::test]
async fn another_socket_is_used_from_the_reload_on() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let node = TestNode::builder()
        .config("[containers]\ncontainerd = '/nonexistent/containerd.sock'\n")
        .start();
    let channel = node.connect().await;
    let status = containers(&channel, "default", CONTAINERD)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    std::fs::write(node.config_file(), containerd.node_config()).unwrap();
    let reloaded = crate::daemon::wait_for_event(&node, "configuration reloaded").await;
    node.signal(rustix::process::Signal::HUP);
    reloaded.await.unwrap();
    let none = containers(&channel, "default", CONTAINERD).await.unwrap();
    assert_eq!(none, []);
    let sockets = format!(
        "[containers]\ncontainerd = '/nonexistent'\n\n[containers.namespaces]\ndefault = {:?}\n",
        containerd.socket()
    );
    containerd.run_container("web", &["--null-io"], &["sleep", "1000000"]);
    let node = TestNode::builder().config(&sockets).start();
    let channel = node.connect().await;
    let of_its_own = containers(&channel, "default", CONTAINERD).await.unwrap();
    assert_eq!(by_id(&of_its_own, "web").status, "RUNNING");
    let all = containers(&channel, "", CONTAINERD).await.unwrap();
    assert_eq!(all, of_its_own, "a socket that is not there hides no other");
    let status = containers(&channel, "k8s.io", CONTAINERD)
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
}

#[tokio::test]
async fn invalid_requests_are_refused_before_the_runtime_is_called() {
    let node = TestNode::builder()
        .config("[containers]\ncontainerd = '/nonexistent/containerd.sock'\n")
        .start();
    let channel = node.connect().await;
    let huge = "x".repeat(4 << 20);
    for namespace in [&*huge, "a b", "../etc", "a\nb", "a\0", "ä", "-"] {
        for driver in [CONTAINERD, CRI] {
            let status = containers(&channel, namespace, driver).await.unwrap_err();
            assert_eq!(status.code(), Code::InvalidArgument, "{status}");
            assert!(status.message().len() < 1000, "little is repeated");
            assert!(!status.message().contains(['\n', '\0']), "{status}");
        }
    }
    for id in [&*huge, "", "a\nb", "a\0b", "\u{1b}[2J"] {
        let status = restart(&channel, "default", id, CONTAINERD)
            .await
            .unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(status.message().len() < 1000, "little is repeated");
    }
    let request = LogsRequest {
        namespace: "default".to_owned(),
        id: huge,
        ..LogsRequest::default()
    };
    let mut machine = MachineServiceClient::new(channel.clone());
    let status = machine.logs(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status}");
    for namespace in ["default", "", "mainstay"] {
        let status = containers(&channel, namespace, CRI).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let words = "CRI inspector is supported only for K8s namespace";
        assert!(status.message().starts_with(words), "{status}");
    }
    let mut client = OsServiceClient::new(channel);
    let request = ContainersRequest {
        namespace: "default".to_owned(),
        driver: 7,
    };
    let status = client.containers(request).await.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument);
    assert!(status.message().contains("driver 7"), "{status}");
    node.cli()
        .run(["containers", "-k", "--namespace", "default"])
        .failed(2);
    node.cli().run(["containers", "--namespace", ""]).failed(2);
}
