//! Reset: what is wiped, listed before and after, and what stays.

use mainstay_testkit::{TestNode, require};

use super::Subject;

#[tokio::test]
async fn a_reset_of_ephemeral_wipes_workloads_and_keeps_the_identity() {
    require!(Root);
    let subject = Subject::start("ephemeral");
    subject.run("web", "echo hello").await;
    let ca = subject.node.ca();
    let cli = || subject.node.cli();
    let listed = cli()
        .run(["reset", "--dry-run", "--label", "EPHEMERAL"])
        .ok();
    assert!(
        listed.contains("state/cells") && !listed.contains("pki"),
        "{listed}"
    );
    cli().run(["reset", "--label", "EPHEMERAL"]).failed(2);
    assert_eq!(
        subject.cells().await.list().await.unwrap().len(),
        1,
        "nothing was done"
    );

    let said = cli().run([
        "reset",
        "--label",
        "ephemeral",
        "--reboot",
        "--yes",
        "-o",
        "json",
    ]);
    let said = said.json();
    assert_eq!(said[0]["result"], "done", "{said}");
    assert_eq!(subject.cells().await.list().await.unwrap().len(), 0);
    assert_eq!(subject.node.ca(), ca);
    let actor = said[0]["actor_id"].as_str().unwrap();
    let events = cli().run(["events", "--tail", "-1"]).ok();
    assert!(
        events.contains(&format!("reset of actor {actor} wiped EPHEMERAL")),
        "{events}"
    );
    let audit = cli().run(["logs", "audit"]).ok();
    assert!(
        audit.contains("MachineService/Reset"),
        "the audit log stays: {audit}"
    );
    let again = cli()
        .run(["reset", "--dry-run", "--label", "EPHEMERAL", "-o", "json"])
        .json();
    assert_eq!(again[0]["actorId"], "", "{again}");
}

#[tokio::test]
async fn a_reset_of_everything_gives_the_node_another_identity() {
    require!(Root);
    let subject = Subject::start("all");
    let ca = subject.node.ca();
    let listen = subject.node.listen().to_string();
    // A copy of the configuration that is about to be wiped.
    let config = subject.node.scratch().join("copy.yaml");
    std::fs::copy(subject.node.state().join("client.yaml"), &config).unwrap();
    let config = config.display().to_string();
    let args = [
        "reset",
        "--reboot",
        "--yes",
        "-e",
        &listen,
        "--client-config",
        &config,
    ];
    let said = subject.node.cli().run(args).ok();
    assert!(said.contains("it has a new CA"), "{said}");
    assert_ne!(subject.node.ca(), ca);
    subject.node.cli().run(["version"]).ok();
}

#[test]
fn a_reset_without_reboot_shuts_the_node_down_and_the_next_start_is_a_first_one() {
    require!(Root);
    let mut node = TestNode::start();
    let ca = node.ca();
    let socket = format!("unix:{}", node.socket().display());
    node.cli().run(["reset", "--yes", "-e", &socket]).ok();
    assert!(node.wait().success());
    let node = node.restart();
    assert_ne!(node.ca(), ca);
}
