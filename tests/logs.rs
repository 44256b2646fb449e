//! `Logs` and the daemon's log stream: the node's own log and its audit log.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{LogsRequest, ReadRequest, RebootRequest};
use mainstay_api::observe::GetAuraeDaemonLogStreamRequest;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_identity::Role;
use mainstay_testkit::{TestNode, soon};
use tonic::Code;

/// Refused for its mode: audited, and without effect.
pub const INVALID_REBOOT: RebootRequest = RebootRequest { mode: -1 };

fn of(id: &str) -> LogsRequest {
    LogsRequest {
        id: id.to_owned(),
        tail_lines: -1,
        ..LogsRequest::default()
    }
}

async fn read(node: &TestNode, request: LogsRequest) -> Result<String, tonic::Status> {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let mut stream = client.logs(request).await?.into_inner();
    let mut text = Vec::new();
    while let Some(data) = soon("the log to end", stream.message()).await? {
        assert!(!data.bytes.is_empty(), "no empty chunks");
        text.extend_from_slice(&data.bytes);
    }
    Ok(String::from_utf8(text).unwrap())
}

#[tokio::test]
async fn every_call_is_logged_with_identity_address_and_status() {
    let node = TestNode::start();
    let alice = node.credentials("alice", &[Role::Reader]);
    let mut client = MachineServiceClient::new(node.connect_as(&alice).await);

    let mut follow = MachineServiceClient::new(node.connect_locally().await)
        .logs(LogsRequest {
            follow: true,
            tail_lines: 0,
            ..of("mainstay")
        })
        .await
        .unwrap()
        .into_inner();
    client.version(()).await.unwrap();
    client.reboot(INVALID_REBOOT).await.unwrap_err();
    let mut text = String::new();
    soon("both lines", async {
        while !(text.contains("/Version") && text.contains("/Reboot")) {
            let data = follow.message().await.unwrap().unwrap();
            text.push_str(std::str::from_utf8(&data.bytes).unwrap());
        }
    })
    .await;
    let line = |word: &str| text.lines().find(|line| line.contains(word)).unwrap();
    let version = line("method=/machine.MachineService/Version");
    assert!(version.contains("who=\"alice (os:reader)\""), "{version}");
    assert!(version.contains("from=127.0.0.1:"), "{version}");
    assert!(version.contains("code=OK took="), "{version}");
    assert!(line("/Reboot").contains("code=PERMISSION_DENIED"), "{text}");
}

#[tokio::test]
async fn mutating_calls_are_audited_and_reads_are_not() {
    let node = TestNode::start();
    let mut follow = MachineServiceClient::new(node.connect_locally().await)
        .logs(LogsRequest {
            follow: true,
            ..of("audit")
        })
        .await
        .unwrap()
        .into_inner();
    let mut client = MachineServiceClient::new(node.connect().await);
    client.version(()).await.unwrap();
    client.reboot(INVALID_REBOOT).await.unwrap_err();
    let data = soon("the audit line", follow.message())
        .await
        .unwrap()
        .unwrap();
    let text = String::from_utf8(data.bytes.to_vec()).unwrap();
    assert!(
        text.contains("AUDIT call method=/machine.MachineService/Reboot"),
        "{text}"
    );
    assert!(text.contains("who=\"admin (os:admin)\""), "{text}");
    assert!(!text.contains("Version"), "{text}");
}

#[tokio::test]
async fn tail_counts_lines_from_the_end() {
    let node = TestNode::start();
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let mut follow = client
        .logs(LogsRequest {
            follow: true,
            ..of("mainstay")
        })
        .await
        .unwrap()
        .into_inner();
    let mut all = String::new();
    // Different ones: repeated calls are folded.
    client.version(()).await.unwrap();
    client.hostname(()).await.unwrap();
    client.memory(()).await.unwrap();
    client.load_avg(()).await.unwrap();
    client.cpu_info(()).await.unwrap();
    soon("the five calls", async {
        while all.matches(" INFO call ").count() < 5 {
            let data = follow.message().await.unwrap().unwrap();
            all.push_str(std::str::from_utf8(&data.bytes).unwrap());
        }
    })
    .await;
    drop(follow);
    let two = read(
        &node,
        LogsRequest {
            tail_lines: 2,
            ..of("mainstay")
        },
    )
    .await
    .unwrap();
    assert_eq!(two.lines().count(), 2);
    let past = read(
        &node,
        LogsRequest {
            tail_lines: i32::MAX,
            ..of("mainstay")
        },
    );
    assert!(past.await.unwrap().starts_with(&all));
    let none = read(
        &node,
        LogsRequest {
            tail_lines: 0,
            ..of("mainstay")
        },
    )
    .await
    .unwrap();
    assert_eq!(none, "");
}

#[tokio::test]
async fn times_bound_what_is_shown() {
    let node = TestNode::start();
    node.wait_for_log("starting");
    let future = prost_types::Timestamp {
        seconds: 4_000_000_000,
        nanos: 0,
    };
    let none = read(
        &node,
        LogsRequest {
            since: Some(future),
            ..of("mainstay")
        },
    )
    .await
    .unwrap();
    assert_eq!(none, "");
    let all = read(
        &node,
        LogsRequest {
            until: Some(future),
            ..of("mainstay")
        },
    )
    .await
    .unwrap();
    assert!(all.contains("starting"), "{all}");
}

#[tokio::test]
async fn bad_requests_are_refused_with_what_to_do() {
    let node = TestNode::start();
    for (request, code, words) in [
        (
            of("nothing"),
            Code::NotFound,
            "log \"nothing\" was not registered",
        ),
        (of("../pki"), Code::NotFound, "was not registered"),
        (of(""), Code::InvalidArgument, "no log is named"),
        (
            LogsRequest {
                tail_lines: -2,
                ..of("mainstay")
            },
            Code::InvalidArgument,
            "tail_lines",
        ),
        (
            LogsRequest {
                driver: 9,
                ..of("mainstay")
            },
            Code::InvalidArgument,
            "driver 9",
        ),
        (
            LogsRequest {
                since: Some(prost_types::Timestamp {
                    seconds: i64::MAX,
                    nanos: 0,
                }),
                ..of("mainstay")
            },
            Code::InvalidArgument,
            "out of range",
        ),
    ] {
        let status = read(&node, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(words), "{status}");
    }
}

#[tokio::test]
async fn the_daemon_s_log_comes_a_line_an_item_then_live() {
    let node = TestNode::start();
    let mut observe = ObserveClient::new(node.connect().await);
    let request = GetAuraeDaemonLogStreamRequest {};
    let mut items = observe
        .get_aurae_daemon_log_stream(request)
        .await
        .unwrap()
        .into_inner();
    let first = soon("the first line", items.message())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(first.channel, "daemon");
    assert!(
        first.line.contains("starting") && !first.line.ends_with('\n'),
        "{}",
        first.line
    );
    let now = jiff::Timestamp::now().as_second();
    assert!(
        (now - 600..=now + 1).contains(&first.timestamp),
        "unix seconds"
    );
    MachineServiceClient::new(node.connect().await)
        .version(())
        .await
        .unwrap();
    soon("the call's own line", async {
        loop {
            if items
                .message()
                .await
                .unwrap()
                .unwrap()
                .line
                .contains("/Version")
            {
                return;
            }
        }
    })
    .await;
}

#[test]
fn the_command_tails_and_prints_json_lines() {
    let node = TestNode::start();
    node.cli().run(["version"]).ok();
    node.wait_for_log("/Version");
    let tail = node.cli().run(["logs", "mainstay", "--tail", "2"]).ok();
    assert_eq!(tail.lines().count(), 2, "{tail}");
    let json = node
        .cli()
        .run(["logs", "mainstay", "--tail", "1", "-o", "json"])
        .json();
    assert!(json["line"].is_string());
    let said = node.cli().run(["logs", "nothing"]).failed(6);
    assert!(
        said.starts_with("error: log \"nothing\" was not registered"),
        "{said}"
    );
    let none = node
        .cli()
        .run(["logs", "mainstay", "--until", "10years"])
        .ok();
    assert_eq!(none, "");
}

#[test]
fn on_disk_it_is_a_plain_log_that_other_tools_read() {
    let node = TestNode::start();
    node.wait_for_log("starting");
    let text = std::fs::read_to_string(node.state().join("logs/mainstay/current")).unwrap();
    let line = text.lines().next().unwrap();
    let mut words = line.splitn(4, ' ');
    words.next().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert_eq!((words.next(), words.next()), (Some("stdout"), Some("F")));
    assert!(words.next().unwrap().contains("starting"));
}

#[tokio::test]
async fn a_cancelled_call_is_logged_too() {
    const CALLS: usize = 50;
    let node = TestNode::start();
    let channel = node.connect().await;
    for _ in 0..CALLS {
        let mut slow = MachineServiceClient::new(channel.clone());
        let mut quick = MachineServiceClient::new(channel.clone());
        let mut call = std::pin::pin!(slow.processes(()));
        tokio::select! {
            biased;
            _ = &mut call => {}
            // On the same connection: when this is answered, the node has seen the other, which
            // is dropped before its own answer.
            version = quick.version(()) => drop(version.unwrap()),
        }
    }
    let mut text = String::new();
    soon("a line for each call", async {
        while calls(&text, "/Processes") < CALLS {
            text = read(&node, of("mainstay")).await.unwrap();
        }
    })
    .await;
    assert_eq!(calls(&text, "/Processes"), CALLS);
    assert!(
        text.contains("code=CANCELLED"),
        "some were abandoned: {text}"
    );
}

/// The number of calls that the lines with this word tell of: one each, or their count.
pub fn calls(text: &str, word: &str) -> usize {
    let lines = text.lines().filter(|line| line.contains(word));
    let counts = lines.map(|line| {
        let count = line.split(' ').find_map(|word| word.strip_prefix("count="));
        count.map_or(1, |count| count.parse().unwrap())
    });
    counts.sum()
}

#[tokio::test]
async fn a_snapshot_contains_every_call_that_ended_before() {
    let node = TestNode::start();
    let alice = node.credentials("alice", &[Role::Reader]);
    let mut client = MachineServiceClient::new(node.connect_as(&alice).await);
    for round in 1..=20 {
        client.version(()).await.unwrap();
        client.hostname(()).await.unwrap();
        client.reboot(INVALID_REBOOT).await.unwrap_err();
        let text = read(&node, of("mainstay")).await.unwrap();
        for method in ["/Version", "/Hostname", "/Reboot"] {
            assert_eq!(calls(&text, method), round, "{text}");
        }
        let denied = read(&node, of("denied")).await.unwrap();
        assert_eq!(calls(&denied, "/Reboot"), round, "{denied}");
    }
}

#[tokio::test]
async fn following_without_a_tail_shows_only_what_comes_after() {
    let node = TestNode::start();
    let mut client = MachineServiceClient::new(node.connect().await);
    for _ in 0..20 {
        client.version(()).await.unwrap();
        let follow = LogsRequest {
            follow: true,
            tail_lines: 0,
            ..of("mainstay")
        };
        let mut lines = client.logs(follow).await.unwrap().into_inner();
        // Never folded, so that a line comes at once.
        client.reboot(INVALID_REBOOT).await.unwrap_err();
        let data = soon("a line", lines.message()).await.unwrap().unwrap();
        let text = String::from_utf8(data.bytes.to_vec()).unwrap();
        assert!(!text.contains("/Version"), "{text}");
    }
}

#[tokio::test]
async fn repeated_readings_are_folded_into_one_line_with_their_count() {
    const CALLS: usize = 300;
    let node = TestNode::start();
    let alice = node.credentials("alice", &[Role::Reader]);
    let mut client = MachineServiceClient::new(node.connect_as(&alice).await);
    for _ in 0..CALLS {
        client.load_avg(()).await.unwrap();
        client.memory(()).await.unwrap();
    }
    // Another caller's are lines of their own.
    let mut admin = MachineServiceClient::new(node.connect().await);
    admin.memory(()).await.unwrap();
    let text = read(&node, of("mainstay")).await.unwrap();
    for method in ["/LoadAvg", "/Memory"] {
        let of_alice = |line: &&str| line.contains(method) && line.contains("alice");
        let lines: Vec<&str> = text.lines().filter(of_alice).collect();
        assert_eq!(calls(&lines.join("\n"), method), CALLS, "{text}");
        // The first, one at the end of each window, and one for the snapshot.
        assert!(lines.len() < CALLS / 10, "{text}");
        assert!(!lines[0].contains("count="), "{}", lines[0]);
        let folded = lines.iter().find(|line| line.contains(" code=OK count="));
        let folded = folded.unwrap_or_else(|| panic!("no count: {text}"));
        assert!(folded.contains(" took_max="), "{folded}");
    }
    assert_eq!(calls(&text, "who=\"admin"), 1, "{text}");
}

#[tokio::test]
async fn audit_lines_are_never_folded() {
    let node = TestNode::start();
    let mut admin = MachineServiceClient::new(node.connect().await);
    for _ in 0..50 {
        admin.reboot(INVALID_REBOOT).await.unwrap_err();
    }
    for log in ["audit", "mainstay"] {
        let text = read(&node, of(log)).await.unwrap();
        let lines = text.lines().filter(|line| line.contains("/Reboot"));
        assert_eq!(lines.count(), 50, "{text}");
        assert!(!text.contains("count="), "{text}");
    }
}

#[tokio::test]
async fn the_error_about_a_missing_log_names_the_logs_that_may_be_meant() {
    let node = TestNode::start();
    for (id, hint) in [
        ("mainsty", "; close matches: mainstay"),
        ("kernal", "; close matches: kernel"),
        ("nosuch", "; this node has audit, denied, kernel, mainstay"),
    ] {
        let status = read(&node, of(id)).await.unwrap_err();
        let wanted = format!("log {id:?} was not registered{hint}");
        assert_eq!(status.message(), wanted);
    }
    let said = node.cli().run(["logs", "mainsty"]).failed(6);
    assert!(said.contains("close matches: mainstay"), "{said}");
}

#[tokio::test]
async fn a_range_of_times_that_ends_before_it_starts_is_refused() {
    let node = TestNode::start();
    let at = |seconds| Some(prost_types::Timestamp { seconds, nanos: 0 });
    for id in ["mainstay", "kernel"] {
        let request = LogsRequest {
            since: at(20),
            until: at(10),
            ..of(id)
        };
        let status = read(&node, request).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status}");
        assert!(
            status.message().contains("since is after until"),
            "{status}"
        );
    }
    let times = ["--since", "1h", "--until", "2h"];
    for command in [&["logs", "mainstay"][..], &["cell", "logs", "a", "b"]] {
        let said = node.cli().run([command, &times].concat()).failed(2);
        assert!(said.contains("--since is after --until"), "{said}");
    }
}

#[tokio::test]
async fn a_log_deleted_under_the_daemon_is_written_again() {
    let node = TestNode::start();
    let logs = node.state().join("logs");
    let mut machine = MachineServiceClient::new(node.connect().await);
    let deletions: [&dyn Fn(); 3] = [
        &|| {
            let current = logs.join("mainstay/current").canonicalize().unwrap();
            std::fs::remove_file(current).unwrap();
        },
        &|| std::fs::remove_dir_all(logs.join("mainstay")).unwrap(),
        &|| std::fs::remove_dir_all(logs.join("audit")).unwrap(),
    ];
    for delete in deletions {
        machine.version(()).await.unwrap();
        node.wait_for_log("MachineService/Version");
        delete();
        // Never folded: the files are read without the daemon, which would write counts first.
        let read = ReadRequest {
            path: "/etc/hostname".to_owned(),
        };
        let mut stream = machine.read(read).await.unwrap().into_inner();
        while stream.message().await.unwrap().is_some() {}
        // Lines are written up to 10 ms after the reply.
        soon("the logs to be there again", async {
            for log in ["mainstay", "audit"] {
                loop {
                    let text = std::fs::read_to_string(logs.join(log).join("current"));
                    if text.is_ok_and(|text| text.contains("/Read")) {
                        break;
                    }
                    machine.memory(()).await.unwrap();
                }
            }
        })
        .await;
    }
}
