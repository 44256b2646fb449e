//! A clock that was ahead and has been set back: what was written then lies in the future now.

use std::path::{Path, PathBuf};
use std::time::Duration;

use mainstay_identity::{
    Authority, ClientConfig, ClientSpec, Context, NodeNames, PrivateKeyPem, Role,
};
use mainstay_records::write_durable;
use mainstay_testkit::TestNode;

use super::assert_unharmed;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn tomorrow() -> jiff::Timestamp {
    jiff::Timestamp::now() + DAY
}

fn newest(directory: &Path, extension: &str) -> PathBuf {
    let mut files: Vec<PathBuf> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    files.sort();
    files.pop().expect("there is a file")
}

#[tokio::test]
async fn a_log_written_in_the_future_is_read_and_goes_on() {
    let mut node = TestNode::start();
    node.kill();
    let file = newest(&node.state().join("logs/mainstay"), "log");
    let mut log = std::fs::read(&file).unwrap();
    let time = tomorrow().strftime("%Y-%m-%dT%H:%M:%S.000000000Z");
    log.extend(format!("{time} stdout F from tomorrow\n").into_bytes());
    std::fs::write(&file, log).unwrap();

    let node = node.restart();
    node.cli().run(["version"]).ok();
    let all = node.cli().run(["logs", "mainstay"]).ok();
    let lines: Vec<&str> = all.lines().collect();
    let ahead = lines
        .iter()
        .position(|line| *line == "from tomorrow")
        .unwrap_or_else(|| panic!("{all}"));
    let started = lines
        .iter()
        .rposition(|line| line.contains("INFO starting"));
    assert!(started > Some(ahead), "in the order of writing: {all}");
    let two = node.cli().run(["logs", "mainstay", "--tail", "2"]).ok();
    assert_eq!(two.lines().count(), 2, "{two}");
    assert!(
        !two.contains("from tomorrow"),
        "the newest lines are last: {two}"
    );
    let recent = node.cli().run(["logs", "mainstay", "--since", "1h"]).ok();
    assert!(recent.contains("INFO serving"), "{recent}");
    assert_unharmed(&node).await;
}

/// CRC-32 as the segments have it, a bit at a time.
fn crc32(pieces: &[&[u8]]) -> u32 {
    let mut crc = !0_u32;
    for byte in pieces.iter().copied().flatten() {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            crc = (crc >> 1) ^ (0xedb8_8320 & (crc & 1).wrapping_neg());
        }
    }
    !crc
}

/// Moves every event of a segment a day ahead: marker 4, length 4, checksum 4, then the body
/// with its number 8, its time 8 and the rest.
fn move_ahead(segment: &Path) -> usize {
    let first: u64 = segment
        .file_stem()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap();
    let mut bytes = std::fs::read(segment).unwrap();
    let (mut at, mut moved) = (0, 0);
    while at < bytes.len() {
        let record = &mut bytes[at..];
        let length: [u8; 4] = record[4..8].try_into().unwrap();
        let end = 12 + usize::try_from(u32::from_le_bytes(length)).unwrap();
        let time = i64::from_le_bytes(record[20..28].try_into().unwrap());
        let ahead = time + i64::try_from(DAY.as_nanos()).unwrap();
        record[20..28].copy_from_slice(&ahead.to_le_bytes());
        let sum = crc32(&[
            &first.to_le_bytes(),
            &u64::try_from(at).unwrap().to_le_bytes(),
            &length,
            &record[12..end],
        ]);
        record[8..12].copy_from_slice(&sum.to_le_bytes());
        at += end;
        // The header of the segment has the number 0.
        moved += usize::from(record[12..20] != [0; 8]);
    }
    std::fs::write(segment, bytes).unwrap();
    moved
}

fn events(node: &TestNode, args: &[&str]) -> Vec<serde_json::Value> {
    let args = [&["events", "-o", "json"], args].concat();
    let text = node.cli().run(args).ok();
    text.lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn ids(events: &[serde_json::Value]) -> Vec<&str> {
    events
        .iter()
        .map(|event| event["id"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn events_from_the_future_keep_their_order() {
    let mut node = TestNode::start();
    node.kill();
    let moved = move_ahead(&newest(&node.state().join("events"), "seg"));
    assert_eq!(moved, 2, "starting and running");

    let node = node.restart();
    let all = events(&node, &["--tail", "-1"]);
    assert_eq!(all.len(), 4, "{all:?}");
    assert!(ids(&all).is_sorted(), "{all:?}");
    let time = |event: &serde_json::Value| event["time"].as_str().unwrap().to_owned();
    assert!(
        time(&all[1]) > time(&all[2]),
        "they are from tomorrow: {all:?}"
    );

    let after = events(&node, &["--after", ids(&all)[1]]);
    assert_eq!(ids(&after), ids(&all)[2..]);
    let last = events(&node, &["--tail", "1"]);
    assert_eq!(ids(&last), ids(&all)[3..]);
    let recent = events(&node, &["--since", "1h"]);
    assert!(ids(&recent).ends_with(&ids(&all)[2..]), "{recent:?}");
    assert_unharmed(&node).await;
}

fn client_of(authority: &Authority, endpoint: String, at: jiff::Timestamp) -> ClientConfig {
    let spec = ClientSpec {
        name: "early".to_owned(),
        roles: vec![Role::Reader],
        ttl: DAY,
    };
    let issued = authority.issue_client_at(&spec, at).unwrap();
    let context = Context {
        endpoints: vec![endpoint],
        ca: Some(issued.ca),
        crt: Some(issued.cert),
        key: Some(issued.key),
        ..Context::default()
    };
    ClientConfig {
        context: "early".to_owned(),
        contexts: [("early".to_owned(), context)].into(),
        ..ClientConfig::default()
    }
}

#[tokio::test]
async fn a_client_certificate_not_yet_valid_is_refused_with_the_reason() {
    let node = TestNode::start();
    let endpoint = node.listen().to_string();
    let early = client_of(&node.authority(), endpoint, tomorrow());
    early.save(&node.scratch().join("early.yaml")).unwrap();
    let said = node
        .cli()
        .run(["version", "--client-config", "early.yaml"])
        .failed(4);
    assert!(said.contains("not valid"), "{said}");
    assert!(said.contains("clock"), "says what to look at: {said}");
    assert_unharmed(&node).await;
    // The node's log knows too.
    node.wait_for_log("the client's certificate is not valid before");
}

fn write_key(path: &Path, key: &PrivateKeyPem) {
    write_durable(path, key.expose().as_bytes(), 0o600).unwrap();
}

#[tokio::test]
async fn a_node_certificate_that_is_not_valid_yet_is_replaced() {
    let mut node = TestNode::start();
    let ca = node.ca();
    let names = NodeNames {
        common_name: "tomorrow".to_owned(),
        dns: vec!["localhost".to_owned()],
        ips: vec![node.listen().ip()],
    };
    let issued = node
        .authority()
        .issue_node_at(&names, 100 * DAY, tomorrow())
        .unwrap();
    node.kill();
    let pki = node.state().join("pki");
    std::fs::write(pki.join("node.crt"), issued.cert).unwrap();
    write_key(&pki.join("node.key"), &issued.key);
    let node = node.restart();
    assert_eq!(node.ca(), ca);
    assert_unharmed(&node).await;
}

/// Some clients check the dates of the authority too, so the node must say so, not just start.
#[test]
fn a_ca_not_yet_valid_is_reported() {
    let builder = TestNode::builder();
    let pki = builder.state().join("pki");
    std::fs::create_dir_all(&pki).unwrap();
    let authority = Authority::create_at("early", 1000 * DAY, tomorrow()).unwrap();
    std::fs::write(pki.join("ca.crt"), authority.certificate()).unwrap();
    write_key(&pki.join("ca.key"), &authority.key());
    let node = builder.start();
    // The unix socket needs no certificate, so the log can be read.
    let socket = format!("unix:{}", node.socket().display());
    let log = node.cli().run(["logs", "mainstay", "-e", &socket]).ok();
    assert!(
        log.lines()
            .any(|line| line.contains("WARN") && line.contains("ca.crt is not valid before")),
        "{log}"
    );
    // Our own clients trust it whatever its dates, and so go on.
    node.cli().run(["version"]).ok();
}
