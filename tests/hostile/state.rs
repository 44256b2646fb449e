//! State files as a crash, a failing disk or a careless hand leaves them.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use mainstay_identity::Role;
use mainstay_testkit::TestNode;

use super::{ask_version, assert_unharmed, noise};

/// The ways in which a file of this content can be half-written.
fn damaged(whole: &[u8]) -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("truncated", whole[..whole.len() / 2].to_vec()),
        ("garbage", noise(3, 2000)),
        ("empty", Vec::new()),
        ("zeros", vec![0; 4096]),
    ]
}

/// Everything in a directory, by name.
fn contents(directory: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), std::fs::read(path).unwrap()))
        .collect()
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

#[tokio::test]
async fn a_damaged_client_configuration_is_issued_again() {
    let mut node = TestNode::start();
    let ca = node.ca();
    let path = node.state().join("client.yaml");
    let whole = std::fs::read(&path).unwrap();
    let mut attacks = damaged(&whole);
    attacks.push(("endless nesting", b"[".repeat(100_000)));
    for (what, bytes) in attacks {
        node.kill();
        std::fs::write(&path, &bytes).unwrap();
        node = node.restart();
        assert_ne!(std::fs::read(&path).unwrap(), bytes, "{what}");
        let mode = std::fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{what}");
        assert_eq!(node.ca(), ca, "{what}");
        ask_version(node.connect().await).await;
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_damaged_node_certificate_is_issued_again_by_the_same_authority() {
    let mut node = TestNode::start();
    let ca = node.ca();
    let alice = node.credentials("alice", &[Role::Reader]);
    for name in ["node.crt", "node.key"] {
        let path = node.state().join("pki").join(name);
        let whole = std::fs::read(&path).unwrap();
        for (what, bytes) in damaged(&whole) {
            node.kill();
            std::fs::write(&path, &bytes).unwrap();
            node = node.restart();
            assert_ne!(std::fs::read(&path).unwrap(), bytes, "{name} {what}");
            assert_eq!(node.ca(), ca, "{name} {what}");
            ask_version(node.connect_as(&alice).await).await;
        }
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_damaged_authority_certificate_is_made_again_and_clients_stay_valid() {
    let mut node = TestNode::start();
    let alice = node.credentials("alice", &[Role::Reader]);
    let path = node.state().join("pki/ca.crt");
    let whole = std::fs::read(&path).unwrap();
    for (what, bytes) in damaged(&whole) {
        node.kill();
        std::fs::write(&path, &bytes).unwrap();
        node = node.restart();
        let aside = std::fs::read(path.with_extension("crt.damaged")).unwrap();
        assert_eq!(aside, bytes, "{what} is kept for analysis");
        ask_version(node.connect_as(&alice).await).await;
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_damaged_authority_key_stops_the_start_and_nothing_is_overwritten() {
    let mut node = TestNode::start();
    let pki = node.state().join("pki");
    let path = pki.join("ca.key");
    let whole = std::fs::read(&path).unwrap();
    let client = std::fs::read(node.state().join("client.yaml")).unwrap();
    node.kill();
    let builder = node.into_builder();
    for (what, bytes) in damaged(&whole) {
        std::fs::write(&path, &bytes).unwrap();
        let before = contents(&pki);
        let (said, code) = builder.refused();
        assert_eq!(code, 1, "{what}: {said}");
        assert!(said.contains(path.to_str().unwrap()), "{what}: {said}");
        assert!(said.contains("backup"), "says what to do: {said}");
        assert!(before == contents(&pki), "{what}: something was written");
    }
    assert_eq!(
        std::fs::read(builder.state().join("client.yaml")).unwrap(),
        client
    );
    // With the key back everything is as it was.
    std::fs::write(&path, whole).unwrap();
    let node = builder.start();
    assert_unharmed(&node).await;
}

fn event_ids(node: &TestNode) -> Vec<String> {
    let text = node
        .cli()
        .run(["events", "--tail", "-1", "-o", "json"])
        .ok();
    text.lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|event| event["id"].as_str().unwrap_or_default().to_owned())
        .filter(|id| !id.is_empty())
        .collect()
}

fn only_file(directory: &Path, extension: &str) -> PathBuf {
    let mut files: Vec<PathBuf> = contents(directory)
        .into_keys()
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files.pop().expect("there is a file")
}

#[tokio::test]
async fn events_before_a_torn_end_are_all_there() {
    let mut node = TestNode::start();
    let events = node.state().join("events");
    let segment = only_file(&events, "seg");
    let whole = std::fs::read(&segment).unwrap();
    for (what, tail) in [
        ("the beginning of a record", whole[..20].to_vec()),
        (
            "a record without its last byte",
            whole[..whole.len() - 1].to_vec(),
        ),
        ("garbage", noise(5, 3000)),
        ("zeros", vec![0; 8192]),
    ] {
        let before = event_ids(&node);
        node.kill();
        append(&only_file(&events, "seg"), &tail);
        node = node.restart();
        let after = event_ids(&node);
        assert!(after.starts_with(&before), "{what}: {before:?} {after:?}");
        assert!(after.len() > before.len(), "{what}: it goes on");
        assert!(after.is_sorted(), "{what}: {after:?}");
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_segment_that_is_all_garbage_costs_only_itself() {
    let mut node = TestNode::start();
    node.kill();
    let segment = only_file(&node.state().join("events"), "seg");
    std::fs::write(&segment, noise(9, 100_000)).unwrap();
    let node = node.restart();
    let after = event_ids(&node);
    assert!(after.len() >= 2 && after.is_sorted(), "{after:?}");
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn a_log_goes_on_after_a_torn_line() {
    let mut node = TestNode::start();
    node.cli().run(["version"]).ok();
    for tail in [
        &b"2026-01-01T00:00:00.000000000Z stdout F half a li"[..],
        b"2026-01-01T00:00:00.0000",
        b"2026-01-01T00:00:00.000000000Z stdout P part of a line\n",
        &noise(4, 5000),
        &[0; 4096],
    ] {
        let before = node.cli().run(["logs", "mainstay", "--tail", "1"]).ok();
        node.kill();
        append(&only_file(&node.state().join("logs/mainstay"), "log"), tail);
        node = node.restart();
        let output = std::process::Command::new(mainstay_testkit::binary())
            .args(["logs", "mainstay", "-e"])
            .arg(format!("unix:{}", node.socket().display()))
            .output()
            .unwrap();
        assert!(output.status.success());
        let after = String::from_utf8_lossy(&output.stdout);
        assert!(
            after.contains(&*before),
            "what was there before is still there"
        );
        let last = after.lines().filter(|line| line.contains("INFO starting"));
        assert!(
            last.count() >= 2,
            "each start has a line of its own: {after}"
        );
        let two = node.cli().run(["logs", "mainstay", "--tail", "2"]).ok();
        assert_eq!(two.lines().count(), 2, "{two}");
    }
    assert_unharmed(&node).await;
}

#[tokio::test]
async fn foreign_files_in_the_state_directory_are_kept() {
    let builder = TestNode::builder();
    let state = builder.state();
    for path in ["events/notes.txt", "logs/readme", "pki/old/ca.key", "stray"] {
        let path = state.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "not ours").unwrap();
    }
    // A directory where a segment should be, and a log that leads elsewhere.
    std::fs::create_dir_all(state.join("events/00000000000000000001.seg")).unwrap();
    std::os::unix::fs::symlink("/etc", state.join("logs/etc")).unwrap();
    let node = builder.start();
    node.cli().run(["logs", "etc"]).failed(6);
    assert_unharmed(&node).await;
    for path in ["events/notes.txt", "logs/readme", "pki/old/ca.key", "stray"] {
        assert_eq!(std::fs::read(state.join(path)).unwrap(), b"not ours");
    }
}
