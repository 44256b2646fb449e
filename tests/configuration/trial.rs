//! A configuration on trial returns to the one before, unless it is confirmed.

use std::time::Duration;

use mainstay_api::machine::ApplyConfigurationRequest;
use mainstay_api::machine::apply_configuration_request::Mode;
use mainstay_testkit::TestNode;
use rustix::process::Signal;

use super::{apply, file, in_force, request, send};
use crate::daemon::wait_for_event;

const OLD: &str = "# the old one\nstop_timeout = '20s'\n";
const NEW: &str = "# on trial\nstop_timeout = '30s'\n";

fn trial(seconds: u64) -> ApplyConfigurationRequest {
    let timeout = Duration::from_secs(seconds).try_into().unwrap();
    ApplyConfigurationRequest {
        try_mode_timeout: Some(timeout),
        ..request(NEW, Mode::Try)
    }
}

async fn stop_timeout_is(node: &TestNode, seconds: u64) -> bool {
    let line = format!("stop_timeout = \"{seconds}s\"");
    in_force(node).await.toml.contains(&line)
}

#[tokio::test]
async fn an_unconfirmed_configuration_ends_by_itself() {
    let node = TestNode::builder().config(OLD).start();
    let ended = wait_for_event(&node, "configuration was not confirmed within 1s").await;
    let answer = send(&node, trial(1)).await.unwrap();
    assert_eq!(answer.mode(), Mode::Try);
    assert!(
        answer.mode_details.starts_with("on trial for 1s, keys"),
        "{}",
        answer.mode_details
    );
    assert_eq!(file(&node), OLD, "the file is not written");
    ended.await.unwrap();
    assert!(stop_timeout_is(&node, 20).await);
    assert_eq!(in_force(&node).await.reverts_at, None);
}

#[tokio::test]
async fn a_confirmed_configuration_stays() {
    let node = TestNode::builder().config(OLD).start();
    send(&node, trial(3600)).await.unwrap();
    assert!(stop_timeout_is(&node, 30).await);
    assert!(in_force(&node).await.reverts_at.is_some());
    let answer = apply(&node, NEW, Mode::NoReboot).await.unwrap();
    assert_eq!(answer.mode_details, "applied, no key changes");
    assert_eq!(file(&node), NEW);
    assert_eq!(in_force(&node).await.reverts_at, None);
    assert!(stop_timeout_is(&node, 30).await);
}

#[tokio::test]
async fn a_second_trial_returns_to_the_configuration_before_both() {
    let node = TestNode::builder().config(OLD).start();
    send(&node, trial(3600)).await.unwrap();
    let ended = wait_for_event(&node, "configuration was not confirmed within 1s").await;
    let mut second = trial(1);
    second.data = "stop_timeout = '40s'\n".into();
    send(&node, second).await.unwrap();
    assert!(stop_timeout_is(&node, 40).await);
    ended.await.unwrap();
    assert!(stop_timeout_is(&node, 20).await);
}

#[tokio::test]
async fn a_refused_change_does_not_end_a_trial() {
    let node = TestNode::builder().config(OLD).start();
    send(&node, trial(3600)).await.unwrap();
    apply(&node, "nothing = 1\n", Mode::Auto).await.unwrap_err();
    assert!(in_force(&node).await.reverts_at.is_some());
    assert!(stop_timeout_is(&node, 30).await);
}

#[tokio::test]
async fn a_reload_of_the_file_ends_a_trial() {
    let node = TestNode::builder().config(OLD).start();
    send(&node, trial(3600)).await.unwrap();
    let reloaded = wait_for_event(&node, "configuration reloaded").await;
    node.signal(Signal::HUP);
    reloaded.await.unwrap();
    assert!(stop_timeout_is(&node, 20).await);
    assert_eq!(in_force(&node).await.reverts_at, None);
}

#[tokio::test]
async fn a_crash_ends_a_trial() {
    let mut node = TestNode::builder().config(OLD).start();
    send(&node, trial(3600)).await.unwrap();
    node.kill();
    let node = node.restart();
    assert!(stop_timeout_is(&node, 20).await);
    assert_eq!(file(&node), OLD);
}
