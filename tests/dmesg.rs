//! `Dmesg` and `mainstay dmesg`, with records this test writes into the kernel's log itself.

use std::io::Write;

use mainstay_api::os::DmesgRequest;
use mainstay_api::os::os_service_client::OsServiceClient;
use mainstay_testkit::{TestNode, soon};

/// A record nobody else writes, at notice of the user facility.
fn write_record(text: &str) {
    let mut kernel = std::fs::OpenOptions::new()
        .write(true)
        .open("/dev/kmsg")
        .unwrap();
    kernel
        .write_all(format!("<13>{text}\n").as_bytes())
        .unwrap();
}

fn unique(name: &str) -> String {
    format!(
        "mainstay-test-{name}-{}-{}",
        std::process::id(),
        jiff::Timestamp::now().as_nanosecond()
    )
}

#[tokio::test]
async fn a_record_is_one_message_in_the_form_clients_know() {
    let text = unique("form");
    write_record(&text);
    let node = TestNode::start();
    let mut os = OsServiceClient::new(node.connect().await);
    let request = DmesgRequest {
        follow: false,
        tail: false,
    };
    let mut records = os.dmesg(request).await.unwrap().into_inner();
    let mut found = None;
    while let Some(data) = soon("the ring to end", records.message()).await.unwrap() {
        let line = String::from_utf8(data.bytes.to_vec()).unwrap();
        if line.contains(&text) {
            found = Some(line);
        }
    }
    let line = found.expect("the record is in the ring");
    assert!(line.starts_with("user:  notice: [20"), "{line}");
    assert!(line.ends_with(&format!("]: {text}\n")), "{line}");
    let time = line.split(['[', ']']).nth(1).unwrap();
    let age = jiff::Timestamp::now().duration_since(time.parse().unwrap());
    assert!(age.as_secs().abs() < 600, "{line}");
}

#[tokio::test]
async fn following_from_now_shows_only_what_is_new() {
    let (before, after) = (unique("before"), unique("after"));
    write_record(&before);
    let node = TestNode::start();
    let mut os = OsServiceClient::new(node.connect().await);
    let request = DmesgRequest {
        follow: true,
        tail: true,
    };
    let mut records = os.dmesg(request).await.unwrap().into_inner();
    write_record(&after);
    soon("the new record", async {
        loop {
            let data = records.message().await.unwrap().unwrap();
            let line = String::from_utf8(data.bytes.to_vec()).unwrap();
            assert!(!line.contains(&before), "{line}");
            if line.contains(&after) {
                return;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn from_now_without_following_is_empty() {
    let node = TestNode::start();
    let mut os = OsServiceClient::new(node.connect().await);
    let request = DmesgRequest {
        follow: false,
        tail: true,
    };
    let mut records = os.dmesg(request).await.unwrap().into_inner();
    assert!(soon("the end", records.message()).await.unwrap().is_none());
}

#[test]
fn the_command_prints_kernel_records() {
    let text = unique("command");
    write_record(&text);
    let node = TestNode::start();
    assert!(node.cli().run(["dmesg"]).ok().contains(&text));
    let json = node.cli().run(["dmesg", "-o", "json"]).ok();
    let line = json.lines().find(|line| line.contains(&text)).unwrap();
    let value: serde_json::Value = serde_json::from_str(line).unwrap();
    assert!(value["line"].as_str().unwrap().ends_with(&text));
}
