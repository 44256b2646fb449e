//! Upgrades and rollbacks that succeed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::{Credentials, TestNode, connect_tls, require, soon, wait_for_exit};
use tokio::net::TcpStream;

use super::builds::{NEXT, OWN, TestImage};
use super::upgrade_node::{
    assert_runs, end_of, roll_back, slots, start, start_rollback, start_upgrade, upgrade,
};
use crate::cells::cell_node::CellNode;
use crate::cells::survival::{COUNTER, assert_counted};

#[tokio::test]
async fn a_node_is_upgraded_and_rolled_back_and_keeps_its_process_and_addresses() {
    let image = TestImage::next();
    let mut node = TestNode::start();
    let before = (node.pid(), node.listen());
    upgrade(&node, image.path()).await.unwrap();
    assert_runs(&node, NEXT, "B").await;
    let found = slots(&node).await;
    let versions: Vec<&str> = found
        .slots
        .iter()
        .map(|slot| slot.version.as_str())
        .collect();
    assert_eq!(versions, [OWN, NEXT]);
    assert!(found.last.unwrap().kept);

    roll_back(&node).await.unwrap();
    assert_runs(&node, OWN, "A").await;
    let last = slots(&node).await.last.unwrap();
    assert_eq!((last.kind.as_str(), last.kept), ("rollback", true));
    roll_back(&node).await.unwrap();
    assert_runs(&node, NEXT, "B").await;
    // Over TLS, at the address of the first daemon.
    let mut machine = MachineServiceClient::new(node.connect().await);
    machine.version(()).await.unwrap();
    assert_eq!((node.pid(), node.listen()), before);
    node.wait_for_log("new version confirmed kind=rollback from=\"0.1.0\" to=\"0.2.0-next\"");
    assert!(node.stop().success());

    // The installed binary starts the slot that is current.
    let node = node.restart();
    assert_runs(&node, NEXT, "B").await;
}

/// A cell counts, a follower reads, and neither misses anything.
#[tokio::test]
async fn workloads_run_on_and_their_log_has_no_gap() {
    require!(Root);
    let image = TestImage::next();
    let test = CellNode::start("upgrade-cells");
    test.allocate("web", &[]).await;
    let counter = test.start_in("web", "counter", COUNTER).await;
    assert_counted(&test.follow_until("web/counter", "20").await);
    for (round, last) in ["60", "100", "140"].into_iter().enumerate() {
        match round {
            0 => upgrade(&test.node, image.path()).await.unwrap(),
            _ => roll_back(&test.node).await.unwrap(),
        }
        let status = test.executable("web", "counter").await;
        assert_eq!((status.pid, status.runs), (counter, 1));
        assert_counted(&test.follow_until("web/counter", last).await);
        // New ones start, in old cells and in new ones.
        let name = format!("new{round}");
        test.start_in("web", &name, "sleep 1000").await;
        test.allocate(&name, &[]).await;
        test.start_in(&name, "sleeps", "sleep 1000").await;
    }
    test.finish().await;
}

/// One reader of a program's output, from before the upgrade to after the rollback.
#[tokio::test]
async fn a_run_is_read_through_both_without_a_gap() {
    require!(Root);
    const COUNT: &str = "i=0; while read -r line; do i=$((i+1)); echo $i $line; done; exit 9";
    let image = TestImage::next();
    let test = CellNode::start("upgrade-run");
    let cli = test.node.cli().stdin(Stdio::piped());
    let mut run = cli.spawn(["run", "--", "sh", "-c", COUNT]);
    let mut stdin = run.stdin.take().unwrap();
    let mut stdout = BufReader::new(run.stdout.take().unwrap());
    let mut read = String::new();
    stdin.write_all(b"before\n").unwrap();
    stdout.read_line(&mut read).unwrap();
    upgrade(&test.node, image.path()).await.unwrap();
    stdin.write_all(b"upgraded\n").unwrap();
    stdout.read_line(&mut read).unwrap();
    roll_back(&test.node).await.unwrap();
    stdin.write_all(b"rolled back\n").unwrap();
    drop(stdin);
    stdout.read_to_string(&mut read).unwrap();
    assert_eq!(read, "1 before\n2 upgraded\n3 rolled back\n");
    assert_eq!(wait_for_exit(&mut run).code(), Some(9));
    test.finish().await;
}

/// Clients connect and call all the time: every connection is accepted, and a call fails only with a
/// status that says to try again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_connection_is_refused() {
    let image = TestImage::next();
    let node = TestNode::start();
    let done = Arc::new(AtomicBool::new(false));
    let poller = tokio::spawn(poll(node.listen(), node.admin(), Arc::clone(&done)));
    upgrade(&node, image.path()).await.unwrap();
    roll_back(&node).await.unwrap();
    done.store(true, Ordering::Relaxed);
    let (answers, longest) = poller.await.unwrap();
    assert!(answers > 10, "{answers}");
    println!("{answers} answers, longest gap {longest:?}");
}

/// Polls every 2 ms over connections of its own. Returns the answers and the longest time without.
async fn poll(
    address: std::net::SocketAddr,
    credentials: Credentials,
    done: Arc<AtomicBool>,
) -> (usize, Duration) {
    let (mut answers, mut longest, mut last) = (0, Duration::ZERO, Instant::now());
    let mut ticks = tokio::time::interval(Duration::from_millis(2));
    while !done.load(Ordering::Relaxed) {
        ticks.tick().await;
        TcpStream::connect(address)
            .await
            .expect("no connection is refused");
        let call = async {
            let channel = connect_tls(address, &credentials).await?;
            Ok::<_, Box<dyn std::error::Error>>(
                MachineServiceClient::new(channel).version(()).await?,
            )
        };
        if soon("an answer or an error", call).await.is_ok() {
            answers += 1;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    (answers, longest)
}

#[tokio::test]
async fn a_second_operator_is_told_of_the_first() {
    let image = TestImage::next();
    let node = TestNode::start();
    let actor = start_upgrade(&node, image.path()).await.unwrap();
    let mut refused = 0;
    for second in [
        start_upgrade(&node, image.path()).await,
        start_rollback(&node).await,
    ] {
        let status = second.unwrap_err();
        if status.code() == tonic::Code::FailedPrecondition {
            let text = status.message();
            assert!(
                text.contains("sequence upgrade") && text.contains(&actor),
                "{status}"
            );
            refused += 1;
        }
    }
    assert!(refused > 0, "both came while the daemon was being replaced");
    end_of(&node, &actor).await.unwrap();
    assert_runs(&node, NEXT, "B").await;
}

#[tokio::test]
async fn the_running_version_is_upgraded_to_with_force_only() {
    let image = TestImage::of(&mainstay_testkit::binary());
    let node = TestNode::start();
    let status = start_upgrade(&node, image.path()).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
    assert!(status.message().contains("runs already"), "{status}");
    assert!(slots(&node).await.slots.is_empty());
    let forced = start(&node, image.path(), |request| request.force = true).await;
    end_of(&node, &forced.unwrap()).await.unwrap();
    assert_runs(&node, OWN, "B").await;
}

#[tokio::test]
async fn a_node_that_was_never_upgraded_cannot_roll_back() {
    let node = TestNode::start();
    let status = start_rollback(&node).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::FailedPrecondition, "{status}");
    assert!(status.message().starts_with("cannot rollback"), "{status}");
}
