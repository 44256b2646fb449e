//! New versions that are broken: the version before comes back by itself and says why.

use mainstay_testkit::{TestNode, require};

use super::builds::{NEXT, OWN, TestImage, version};
use super::upgrade_node::{assert_runs, roll_back, slots, upgrade};
use crate::cells::cell_node::CellNode;
use crate::cells::survival::{COUNTER, assert_counted};

async fn assert_returns(node: &TestNode, image: &TestImage, reason: &str) {
    let before = (node.pid(), node.listen());
    let error = upgrade(node, image.path()).await.unwrap_err();
    assert!(error.contains(reason), "{error}");
    assert_runs(node, OWN, "A").await;
    let last = slots(node).await.last.unwrap();
    assert!(!last.kept && last.reason.contains(reason), "{last:?}");
    node.wait_for_log(reason);
    assert_eq!((node.pid(), node.listen()), before);
    node.connect().await;
}

#[tokio::test]
async fn a_version_that_does_not_start() {
    let node = TestNode::start();
    assert_returns(
        &node,
        &TestImage::broken("exit"),
        "the new version ended (exit code 3)",
    )
    .await;
    // The node is as good as before.
    upgrade(&node, TestImage::next().path()).await.unwrap();
    assert_runs(&node, NEXT, "B").await;
}

#[tokio::test]
async fn a_version_that_starts_and_answers_nothing() {
    let node = TestNode::builder()
        .config("[upgrade]\ndeadline = '1s'\n")
        .start();
    let reason = "the new version was not healthy within 1 s";
    assert_returns(&node, &TestImage::broken("hang"), reason).await;
}

#[tokio::test]
async fn a_version_that_answers_and_has_lost_workloads() {
    require!(Root);
    let test = CellNode::start("upgrade-lost");
    test.allocate("web", &[]).await;
    test.allocate("other", &[]).await;
    test.start_in("web", "counter", COUNTER).await;
    let victim = test.start_in("other", "victim", "sleep 1000").await;
    let program = version(NEXT, 1);
    let image = TestImage::broken(&format!("kill {victim} -- {}", program.display()));
    let reason = "the new version reports: 1 of 2 workloads are lost: other/victim";
    // The program is not the one with the stamp: the API reports another version than the image.
    assert_returns(&test.node, &image, reason).await;
    assert_counted(&test.follow_until("web/counter", "40").await);
    test.finish().await;
}

/// A version that crashes after it was confirmed is kept: the service manager starts it again.
#[tokio::test]
async fn a_version_that_crashes_after_the_trial_is_kept() {
    let mut node = TestNode::start();
    upgrade(&node, TestImage::next().path()).await.unwrap();
    node.kill();
    let node = node.restart();
    assert_runs(&node, NEXT, "B").await;
    roll_back(&node).await.unwrap();
    assert_runs(&node, OWN, "A").await;
}
