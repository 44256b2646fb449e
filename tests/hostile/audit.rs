//! Attempts to displace the audit history: by calls that are refused, and by many that are not.

use bytes::Bytes;
use futures_util::future::join_all;
use mainstay_api::common::Data;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{LogsRequest, ReadRequest};
use mainstay_identity::Role;
use mainstay_testkit::{Credentials, TestNode, soon};
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request};

use super::assert_unharmed;
use crate::daemon::wait_for_event;
use crate::logs::{INVALID_REBOOT, calls};
use crate::talos::Raw;

/// Logs that a few thousand lines would rotate several times.
const SMALL_LOGS: &str = "[log]\nfile_size = '32KiB'\ntotal_size = '128KiB'\n";
const CONNECTIONS: usize = 4;
const CALLS: usize = 1500;

async fn log(node: &TestNode, id: &str) -> String {
    let request = LogsRequest {
        id: id.to_owned(),
        tail_lines: -1,
        ..LogsRequest::default()
    };
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let mut stream = client.logs(request).await.unwrap().into_inner();
    let mut text = Vec::new();
    while let Some(Data { bytes, .. }) = soon("the log", stream.message()).await.unwrap() {
        text.extend_from_slice(&bytes);
    }
    String::from_utf8(text).unwrap()
}

/// Calls a method, and asserts that the call fails.
async fn refused(channel: &Channel, path: &str, forwarded_role: bool) -> Code {
    let mut grpc = Grpc::new(channel.clone());
    grpc.ready().await.unwrap();
    let mut request = Request::new(Bytes::new());
    if forwarded_role {
        let role = "os:admin".parse().unwrap();
        request.metadata_mut().insert("mainstay-role", role);
    }
    let call = grpc.server_streaming(request, path.parse().unwrap(), Raw);
    let status = call.await.expect_err("the call is refused");
    assert!(status.message().len() < 400, "{status}");
    status.code()
}

/// Every kind of call that ends without an effect, again and again.
async fn flood(node: &TestNode, credentials: &Credentials, connection: usize) {
    let channel = node.connect_as(credentials).await;
    for number in 0..CALLS {
        let (path, forwarded) = match number % 6 {
            0 => ("/machine.MachineService/Read".to_owned(), false),
            1 => ("/machine.MachineService/Reboot".to_owned(), false),
            2 => (format!("/no.Such{connection}/Method{number}"), false),
            3 => (format!("/{}/{number}", "x".repeat(2000)), false),
            4 => ("/machine.MachineService/Version".to_owned(), true),
            _ => ("/services.auth.AuthService/Login".to_owned(), false),
        };
        refused(&channel, &path, forwarded).await;
    }
}

fn size_of(node: &TestNode, log: &str) -> u64 {
    let files = std::fs::read_dir(node.state().join("logs").join(log)).unwrap();
    // One may be removed meanwhile.
    let files = files.filter_map(|file| file.unwrap().metadata().ok());
    files
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .sum()
}

#[tokio::test]
async fn refused_calls_of_a_reader_displace_no_audit_entry() {
    let node = TestNode::builder().config(SMALL_LOGS).start();
    let mut admin = MachineServiceClient::new(node.connect().await);
    let path = node.config_file().display().to_string();
    let mut file = admin.read(ReadRequest { path }).await.unwrap().into_inner();
    while file.message().await.unwrap().is_some() {}
    let entry = |text: &str| {
        let mut lines = text.lines();
        let of_admin = |line: &&str| line.contains("/Read") && line.contains("who=\"admin ");
        lines.find(of_admin).map(str::to_owned)
    };
    let before = entry(&log(&node, "audit").await).expect("the call is audited");

    let eve = node.credentials("eve", &[Role::Reader]);
    let floods = (0..CONNECTIONS).map(|connection| flood(&node, &eve, connection));
    join_all(floods).await;

    let audit = log(&node, "audit").await;
    assert_eq!(entry(&audit), Some(before), "{audit}");
    assert!(!audit.contains("eve"), "{audit}");
    // No refusal is lost either: each is counted, in a log of its own and in the daemon's.
    for id in ["denied", "mainstay"] {
        let text = log(&node, id).await;
        assert_eq!(calls(&text, "eve"), CONNECTIONS * CALLS, "{id}: {text}");
        let longest = text.lines().map(str::len).max().unwrap();
        assert!(longest < 600, "{id} has a line of {longest} bytes");
    }
    assert!(size_of(&node, "denied") < 64 << 10);
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn the_audit_log_keeps_entries_beyond_the_size_of_other_logs() {
    let node = TestNode::builder().config(SMALL_LOGS).start();
    let mut admin = MachineServiceClient::new(node.connect().await);
    const ENTRIES: usize = 1500;
    for _ in 0..ENTRIES {
        admin.reboot(INVALID_REBOOT).await.unwrap_err();
    }
    let audit = log(&node, "audit").await;
    assert_eq!(calls(&audit, "/Reboot"), ENTRIES);
    assert!(
        size_of(&node, "audit") > 128 << 10,
        "more than the log section allows"
    );
    // A restart keeps them.
    let node = node.restart();
    let audit = log(&node, "audit").await;
    assert_eq!(calls(&audit, "/Reboot"), ENTRIES);
}

#[tokio::test]
async fn an_audit_log_near_its_limit_raises_the_alarm_before_entries_are_removed() {
    let config = "[audit]\nmax_size = '64KiB'\n";
    let node = TestNode::builder().config(config).start();
    let filling = wait_for_event(&node, "audit log nears its size limit").await;
    let removed = wait_for_event(&node, "audit entries removed").await;
    let mut admin = MachineServiceClient::new(node.connect().await);
    let mut made = 0;
    while !filling.is_finished() {
        admin.reboot(INVALID_REBOOT).await.unwrap_err();
        made += 1;
        assert!(size_of(&node, "audit") < 128 << 10, "no alarm is raised");
    }
    filling.await.unwrap();
    let text = log(&node, "mainstay").await;
    assert!(
        text.contains("WARN audit log nears its size limit"),
        "{text}"
    );
    assert!(made > 100, "{made}");
    while !removed.is_finished() {
        admin.reboot(INVALID_REBOOT).await.unwrap_err();
        assert!(
            size_of(&node, "audit") < 128 << 10,
            "the limit does not hold"
        );
    }
    removed.await.unwrap();
    let text = log(&node, "mainstay").await;
    let warned = text.find("WARN audit log nears its size limit");
    let lost = text.find("ERROR audit entries removed before their time");
    assert!(warned.is_some() && warned < lost, "{text}");
}
