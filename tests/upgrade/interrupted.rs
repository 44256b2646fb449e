//! SIGKILL at any moment of an upgrade: the next start runs one of the two versions, and says how the
//! upgrade has ended.

use mainstay_testkit::TestNode;

use super::builds::{NEXT, OWN, TestImage};
use super::upgrade_node::{assert_runs, end_of, events_of, running_version, slots, start_upgrade};

/// The whole node, guard and all, is killed during the trial of a version that hangs.
#[tokio::test]
async fn a_trial_that_is_killed_has_failed() {
    let mut node = TestNode::builder()
        .config("[upgrade]\ndeadline = '10m'\n")
        .start();
    let actor = start_upgrade(&node, TestImage::broken("hang").path())
        .await
        .unwrap();
    let trial = child_of(&node).await;
    node.kill();
    // The kernel kills the trial with its guard.
    assert!(mainstay_testkit::wait_until_exited(&trial));
    let node = node.restart();
    let error = end_of(&node, &actor).await.unwrap_err();
    assert!(error.contains("the node ended during the trial"), "{error}");
    assert_runs(&node, OWN, "A").await;
}

/// SIGTERM during the trial stops the node; the next start runs the version before.
#[tokio::test]
async fn a_node_that_is_stopped_during_a_trial_returns() {
    let mut node = TestNode::builder()
        .config("[upgrade]\ndeadline = '10m'\n")
        .start();
    let actor = start_upgrade(&node, TestImage::broken("hang").path())
        .await
        .unwrap();
    let trial = child_of(&node).await;
    node.stop();
    assert!(mainstay_testkit::wait_until_exited(&trial));
    let node = node.restart();
    let error = end_of(&node, &actor).await.unwrap_err();
    assert!(
        error.contains("the node was stopped during the trial"),
        "{error}"
    );
    assert_runs(&node, OWN, "A").await;
}

/// The daemon on trial alone is killed.
#[tokio::test]
async fn a_trial_whose_daemon_is_killed_returns() {
    let node = TestNode::builder()
        .config("[upgrade]\ndeadline = '10m'\n")
        .start();
    let actor = start_upgrade(&node, TestImage::broken("hang").path())
        .await
        .unwrap();
    let trial = child_of(&node).await;
    rustix::process::pidfd_send_signal(&trial, rustix::process::Signal::KILL).unwrap();
    let error = end_of(&node, &actor).await.unwrap_err();
    assert!(
        error.contains("the new version ended (signal 9)"),
        "{error}"
    );
    assert_runs(&node, OWN, "A").await;
}

/// SIGKILL after each number of events: in every phase before the trial, and after it.
#[tokio::test]
async fn sigkill_in_every_phase_leaves_one_of_two_versions() {
    let image = TestImage::next();
    let mut ends = Vec::new();
    for events in [1, 2, 8, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 25, 26, 28] {
        let mut node = TestNode::start();
        let actor = start_upgrade(&node, image.path()).await.unwrap();
        let seen = events_of(&node, &actor, events).await;
        node.kill();
        let node = node.restart();
        let end = end_of(&node, &actor).await;
        ends.push((seen, end.is_ok()));
        assert_one_of_two(&node, end).await;
    }
    println!("{ends:#?}");
    assert!(ends.iter().any(|(_, kept)| *kept), "{ends:?}");
    assert!(ends.iter().any(|(_, kept)| !*kept), "{ends:?}");
}

/// The guard and a good version are killed as soon as the trial begins.
#[tokio::test]
async fn sigkill_at_the_begin_of_the_trial_returns() {
    let image = TestImage::next();
    let mut node = TestNode::start();
    let actor = start_upgrade(&node, image.path()).await.unwrap();
    child_of(&node).await;
    node.kill();
    let node = node.restart();
    let end = end_of(&node, &actor).await;
    assert_one_of_two(&node, end).await;
}

async fn assert_one_of_two(node: &TestNode, end: Result<(), String>) {
    match end {
        Ok(()) => assert_runs(node, NEXT, "B").await,
        Err(_) => {
            assert_eq!(running_version(node).await, OWN);
            assert_eq!(slots(node).await.trial, "");
        }
    }
    // Either version can be upgraded.
    let version = running_version(node).await;
    let broken = TestImage::broken("exit");
    let actor = start_upgrade(node, broken.path()).await.unwrap();
    end_of(node, &actor).await.unwrap_err();
    assert_eq!(running_version(node).await, version);
}

/// Waits for the daemon on trial, the child of the guard. Returns its pidfd.
async fn child_of(node: &TestNode) -> rustix::fd::OwnedFd {
    let children = format!("/proc/{0}/task/{0}/children", node.pid());
    let find = || {
        let text = std::fs::read_to_string(&children).unwrap_or_default();
        let pids = text.split_whitespace().filter_map(|pid| pid.parse().ok());
        pids.filter_map(rustix::process::Pid::from_raw).find(|pid| {
            let pid = pid.as_raw_nonzero();
            std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| {
                environment
                    .split(|byte| *byte == 0)
                    .any(|it| it.starts_with(b"MAINSTAY_TRIAL="))
            })
        })
    };
    let found = mainstay_testkit::soon("the trial", async {
        loop {
            if let Some(pid) = find() {
                return pid;
            }
            tokio::task::yield_now().await;
        }
    });
    let flags = rustix::process::PidfdFlags::empty();
    rustix::process::pidfd_open(found.await, flags).unwrap()
}
