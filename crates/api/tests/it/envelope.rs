//! A node answering for itself returns exactly one message with `metadata` unset.

use mainstay_api::common::Metadata;
use mainstay_api::{envelope, machine, os};
use prost::Message;

#[test]
fn an_answer_is_the_only_message_of_its_reply() {
    let platform = machine::PlatformInfo {
        name: "metal".into(),
        mode: "metal".into(),
    };
    let version = machine::Version {
        platform: Some(platform),
        ..Default::default()
    };
    let reply: machine::VersionResponse = envelope(version.clone());
    assert_eq!(reply.messages, [version]);
}

#[test]
fn an_answer_without_content_still_makes_one_message_on_the_wire() {
    assert_eq!(
        envelope(os::Restart::default()).encode_to_vec(),
        [0x0a, 0x00]
    );
}

#[test]
fn metadata_is_left_to_the_node_that_forwards() {
    let metadata = Metadata {
        hostname: "elsewhere".into(),
        error: String::new(),
        ..Metadata::default()
    };
    let memory = os::Memory {
        metadata: Some(metadata),
        meminfo: None,
    };
    assert_eq!(envelope(memory).messages[0].metadata, None);
}
