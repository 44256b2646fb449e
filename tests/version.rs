//! `Version`, over every door.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::TestNode;

#[tokio::test]
async fn a_node_answers_for_itself_with_exactly_one_message() {
    let node = TestNode::start();
    for channel in [node.connect().await, node.connect_locally().await] {
        let answer = MachineServiceClient::new(channel)
            .version(())
            .await
            .unwrap()
            .into_inner();
        assert_eq!(answer.messages.len(), 1);
        let message = &answer.messages[0];
        assert!(message.metadata.is_none(), "only a forwarding node sets it");
        let version = message.version.as_ref().unwrap();
        assert_eq!(version.tag, concat!("v", env!("CARGO_PKG_VERSION")));
        assert_eq!(version.os, "linux");
        assert!(
            version.go_version.starts_with("1."),
            "holds the compiler's version"
        );
        let platform = message.platform.as_ref().unwrap();
        assert!(["metal", "cloud", "container"].contains(&platform.mode.as_str()));
        assert!(message.features.is_some_and(|features| features.rbac));
    }
}

#[test]
fn the_command_shows_both_sides() {
    let node = TestNode::start();
    let table = node.cli().run(["version"]).ok();
    assert!(
        table.contains("(this command)") && table.contains(&node.listen().to_string()),
        "{table}"
    );
    let value = node.cli().run(["version", "-o", "json"]).json();
    assert_eq!(value["server"][0]["version"]["tag"], value["client"]["tag"]);
    let yaml = node.cli().run(["version", "-o", "yaml"]).ok();
    assert!(yaml.starts_with("client:"), "{yaml}");
}

#[test]
fn the_client_alone_needs_no_node() {
    let home = tempfile::tempdir().unwrap();
    let value = mainstay_testkit::Cli::new(home.path())
        .run(["version", "--client", "-o", "json"])
        .json();
    assert_eq!(
        value["client"]["tag"],
        concat!("v", env!("CARGO_PKG_VERSION"))
    );
    assert!(value.get("server").is_none());
}
