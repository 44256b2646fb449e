//! The platform in force: what `Version` says, and what a reboot does on it. The commands of
//! platform "host" are always the test's own: nothing here reboots a machine.

use mainstay_testkit::{TestNode, require, soon};

use super::{Subject, count};

#[test]
fn a_daemon_that_is_not_pid_1_is_on_platform_container() {
    let node = TestNode::start();
    let version = node.cli().run(["version", "-o", "json"]).json();
    let platform = &version["server"][0]["platform"];
    assert_eq!(platform["name"], "container", "{version}");
    assert_eq!(platform["mode"], "container", "{version}");
}

#[test]
fn a_platform_that_cannot_be_is_a_configuration_error() {
    let (said, code) = TestNode::builder().config("platform = 'metal'\n").refused();
    assert_eq!(code, 1);
    assert!(
        said.contains("runs as PID 1") && said.contains("\"host\""),
        "{said}"
    );
    let (said, code) = TestNode::builder().config("platform = 'moon'\n").refused();
    assert_eq!(code, 2);
    assert!(
        said.contains("container") && said.contains("host"),
        "{said}"
    );
}

/// A command that leaves a line in a file.
fn command(file: &std::path::Path) -> String {
    format!("['sh', '-c', 'echo ran >> {}']", file.display())
}

#[tokio::test]
async fn on_a_host_a_reboot_is_the_machines() {
    require!(Root);
    let builder = TestNode::builder();
    let ran = builder.scratch().join("rebooted");
    let off = builder.scratch().join("off");
    let keys = format!(
        "platform = 'host'\n[lifecycle]\nreboot_command = {}\nshutdown_command = {}\n",
        command(&ran),
        command(&off)
    );
    let mut subject = Subject::start_with("host", builder, &keys, "");
    let version = subject
        .machine()
        .await
        .version(())
        .await
        .unwrap()
        .into_inner();
    let platform = version.messages[0].platform.clone().unwrap();
    assert_eq!(
        (platform.name.as_str(), platform.mode.as_str()),
        ("host", "metal")
    );

    let lines = || {
        std::fs::read_to_string(&ran)
            .unwrap_or_default()
            .lines()
            .count()
    };
    let actor = subject.reboot().await;
    soon("the command", async {
        while lines() < 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // The machine has not rebooted yet: a daemon that dies meanwhile asks for it again.
    subject.node.kill();
    subject.node = subject.node.restart();
    soon("the command again", async {
        while lines() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    let events = subject.events(&actor).await;
    assert_eq!(count(&events, "sequence reboot STOP"), 0, "{events:#?}");

    // Forced, because the reboot is still to come.
    let said = subject.node.cli().run(["shutdown", "--force"]).ok();
    assert_eq!(said, "shut down\n");
    assert!(off.exists());
    subject.machine().await.version(()).await.unwrap();
}

#[tokio::test]
async fn a_reboot_command_that_fails_is_reported() {
    require!(Root);
    let keys = "platform = 'host'\n[lifecycle]\nreboot_command = ['sh', '-c', 'echo no >&2; exit 4']\n\
                shutdown_command = ['false']\n";
    let subject = Subject::start_with("host-fails", TestNode::builder(), keys, "");
    let said = subject.node.cli().run(["reboot"]).failed(1);
    assert!(
        said.contains("exit status: 4") && said.contains("no"),
        "{said}"
    );
    subject.machine().await.version(()).await.unwrap();
}
