//! Switches at the next start of the node.

use mainstay_testkit::{TestNode, binary, older_binary, require};

use super::builds::{NEXT, OWN, TestImage};
use super::upgrade_node::{
    assert_runs, end_of, running_version, slots, start, until_published, upgrade,
};

async fn stage(node: &TestNode, image: &TestImage) {
    let actor = start(node, image.path(), |request| request.stage = true).await;
    end_of(node, &actor.unwrap()).await.unwrap();
    assert_eq!(running_version(node).await, OWN);
    let slots = slots(node).await;
    assert!(slots.staged && slots.trial == "B", "{slots:?}");
}

#[tokio::test]
async fn a_staged_version_is_switched_to_at_the_next_start() {
    let node = TestNode::start();
    stage(&node, &TestImage::broken("exit")).await;
    // A later one replaces it.
    stage(&node, &TestImage::next()).await;
    let node = node.restart();
    until_published(&node, "upgrade from 0.1.0 to 0.2.0-next confirmed").await;
    assert_runs(&node, NEXT, "B").await;
}

#[tokio::test]
async fn a_staged_version_that_fails_is_reported() {
    let node = TestNode::start();
    stage(&node, &TestImage::broken("exit")).await;
    let node = node.restart();
    until_published(
        &node,
        "upgrade to 6.6.6 failed, 0.1.0 runs again: the new version ended",
    )
    .await;
    let last = slots(&node).await.last.unwrap();
    assert_eq!(
        (last.kept, last.reason.as_str()),
        (false, "the new version ended (exit code 3)")
    );
    assert_runs(&node, OWN, "A").await;
}

/// The binary that the package manager has installed after an upgrade is what the operator wants.
#[tokio::test]
async fn an_installed_binary_that_was_replaced_becomes_the_current_slot() {
    let dir = tempfile::TempDir::new().unwrap();
    let installed = dir.path().join("mainstay");
    std::fs::copy(binary(), &installed).unwrap();
    let node = TestNode::builder().program(&installed).start();
    upgrade(&node, TestImage::next().path()).await.unwrap();
    assert_runs(&node, NEXT, "B").await;
    // Untouched, it starts the slot.
    let node = node.restart();
    assert_runs(&node, NEXT, "B").await;
    let node = node.into_builder();
    std::fs::remove_file(&installed).unwrap();
    std::fs::copy(super::builds::version("0.3.0-deb", 1), &installed).unwrap();
    let node = node.start();
    assert_runs(&node, "0.3.0-deb", "A").await;
    let node = node.restart();
    assert_runs(&node, "0.3.0-deb", "A").await;
    super::upgrade_node::roll_back(&node).await.unwrap();
    assert_runs(&node, NEXT, "B").await;
    let node = node.restart();
    assert_runs(&node, NEXT, "B").await;
}

/// A build without slots serves the same state, and the next start finds the slots again.
#[tokio::test]
async fn an_older_build_leaves_the_slots_alone() {
    require!(OlderBuild);
    let node = TestNode::start();
    upgrade(&node, TestImage::next().path()).await.unwrap();
    let older = node.into_builder().program(&older_binary()).start();
    let older = older.into_builder().program(&binary()).start();
    assert_runs(&older, NEXT, "B").await;
    super::upgrade_node::roll_back(&older).await.unwrap();
    assert_runs(&older, OWN, "A").await;
}
