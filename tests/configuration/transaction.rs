//! A change takes effect as a whole, or not at all.

use std::os::unix::fs::{MetadataExt, PermissionsExt};

use mainstay_api::machine::apply_configuration_request::Mode;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{ApplyConfigurationRequest, EventsRequest};
use mainstay_identity::{CertificateInfo, Role};
use mainstay_testkit::{FrozenDisk, TestFleet, TestNode, require, soon, to_nodes};
use tonic::{Code, Request};

use super::{apply, file, in_force, request, send};

const OLD: &str = "# the old one\n[log]\nlevel = 'info'\n";

#[tokio::test]
async fn a_configuration_is_written_as_sent_and_in_force_at_once() {
    let node = TestNode::builder().config(OLD).start();
    let path = node.config_file();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    let text = "# a comment of ours\nstop_timeout = '7s'\n\n[log]\nlevel = 'debug' # loud\n";
    let answer = apply(&node, text, Mode::Auto).await.unwrap();
    assert_eq!(answer.mode(), Mode::NoReboot);
    assert_eq!(
        answer.mode_details,
        "applied, keys changed at once: stop_timeout, log.level"
    );
    assert!(answer.warnings.is_empty(), "{:?}", answer.warnings);
    assert_eq!(file(&node), text, "the comments too");
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o640);
    let now = in_force(&node).await;
    assert!(now.toml.contains("stop_timeout = \"7s\""), "{}", now.toml);
    assert!(now.toml.contains("level = \"debug\""), "{}", now.toml);
    assert!(now.pending_restart.is_empty());
    node.wait_for_log("configuration applied, keys changed at once: stop_timeout, log.level");

    // What was there before is kept, readable by root only.
    let kept = node.state().join("configuration/000001.toml");
    assert_eq!(std::fs::read_to_string(&kept).unwrap(), OLD);
    assert_eq!(std::fs::metadata(&kept).unwrap().mode() & 0o777, 0o600);

    let node = node.restart();
    assert!(in_force(&node).await.toml.contains("stop_timeout = \"7s\""));
}

#[tokio::test]
async fn the_owner_of_the_file_is_kept() {
    require!(Root);
    let node = TestNode::builder().config(OLD).start();
    std::os::unix::fs::chown(node.config_file(), Some(65534), Some(65533)).unwrap();
    apply(&node, "# new\n", Mode::Auto).await.unwrap();
    let metadata = std::fs::metadata(node.config_file()).unwrap();
    assert_eq!((metadata.uid(), metadata.gid()), (65534, 65533));
}

#[tokio::test]
async fn a_link_to_the_file_stays_a_link() {
    let node = TestNode::builder().config(OLD).start();
    let real = node.scratch().join("real.toml");
    std::fs::rename(node.config_file(), &real).unwrap();
    std::os::unix::fs::symlink("real.toml", node.config_file()).unwrap();
    apply(&node, "# new\n", Mode::Auto).await.unwrap();
    assert_eq!(std::fs::read_to_string(&real).unwrap(), "# new\n");
    let link = std::fs::symlink_metadata(node.config_file()).unwrap();
    assert!(link.is_symlink());
}

#[tokio::test]
async fn keys_that_need_a_restart_wait_for_it_or_are_refused() {
    let node = TestNode::builder().config(OLD).start();
    let text = "stop_timeout = '3s'\npods_listen = '127.0.0.1:0'\n[cells]\nusers = 70000\n";

    for mode in [Mode::NoReboot, Mode::Try] {
        let refused = apply(&node, text, mode).await.unwrap_err();
        assert_eq!(refused.code(), Code::FailedPrecondition);
        for key in ["pods_listen", "cells.users"] {
            assert!(refused.message().contains(key), "{refused}");
        }
        assert_eq!(file(&node), OLD);
    }

    let answer = apply(&node, text, Mode::Auto).await.unwrap();
    assert_eq!(answer.mode(), Mode::Staged, "something waits");
    assert_eq!(
        answer.mode_details,
        "applied, keys changed at once: stop_timeout, log.level; on restart: pods_listen, \
         cells.users"
            .replace(", log.level", ""),
    );
    let now = in_force(&node).await;
    assert_eq!(now.pending_restart, ["pods_listen", "cells.users"]);
    assert!(now.toml.contains("stop_timeout = \"3s\""), "{}", now.toml);

    // The same again needs no further restart, nor does taking it back.
    apply(&node, text, Mode::NoReboot).await.unwrap();
    apply(&node, OLD, Mode::NoReboot).await.unwrap();
    assert!(in_force(&node).await.pending_restart.is_empty());

    apply(&node, text, Mode::Auto).await.unwrap();
    let node = node.restart();
    assert!(node.pods_listen().ip().is_loopback());
    assert!(in_force(&node).await.pending_restart.is_empty());
}

#[tokio::test]
async fn a_configuration_is_in_force_after_the_reboot_asked_for_with_it() {
    let node = TestNode::builder().config(OLD).start();
    let text = "stop_timeout = '3s'\n[cells]\nusers = 70000\n";
    // Ends with the daemon that is replaced.
    let mut events = MachineServiceClient::new(node.connect_locally().await)
        .events(EventsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let answer = apply(&node, text, Mode::Reboot).await.unwrap();
    assert_eq!(answer.mode(), Mode::Reboot);
    assert!(
        answer.mode_details.contains("rebooting as "),
        "{}",
        answer.mode_details
    );
    while let Ok(Some(_)) = events.message().await {}
    assert_eq!(file(&node), text);
    let now = in_force(&node).await;
    assert!(now.toml.contains("users = 70000"), "{}", now.toml);
    assert!(now.pending_restart.is_empty());
}

#[tokio::test]
async fn a_staged_configuration_waits_for_the_next_start() {
    let node = TestNode::builder().config(OLD).start();
    let text = "stop_timeout = '3s'\n[log]\nlevel = 'info'\n";
    let answer = apply(&node, text, Mode::Staged).await.unwrap();
    assert_eq!(answer.mode(), Mode::Staged);
    assert_eq!(file(&node), text);
    let now = in_force(&node).await;
    assert!(now.toml.contains("stop_timeout = \"10s\""), "{}", now.toml);
    assert_eq!(now.pending_restart, ["stop_timeout"]);
    let node = node.restart();
    let now = in_force(&node).await;
    assert!(now.toml.contains("stop_timeout = \"3s\""), "{}", now.toml);
    assert!(now.pending_restart.is_empty());
}

#[tokio::test]
async fn a_dry_run_shows_the_difference_and_changes_nothing() {
    let old = "# nodes\n[peers]\nn2 = '10.0.0.2'\napi-token = 'hunter2.example.org'\n";
    let node = TestNode::builder().config(old).start();
    let text = "# nodes\nnames = ['a.example.org']\n[peers]\nn2 = '10.0.0.2'\n\
                api-token = 'swordfish.example.org'\n";
    let dry = ApplyConfigurationRequest {
        dry_run: true,
        ..request(text, Mode::Auto)
    };
    let answer = send(&node, dry).await.unwrap();
    let (summary, difference) = answer.mode_details.split_once("\n\n").unwrap();
    assert_eq!(
        summary,
        "dry run, keys changed at once: names, peers.api-token"
    );
    let path = node.config_file().display().to_string();
    assert_eq!(
        difference,
        format!(
            "--- {path}\n+++ {path} (new)\n@@ -1,4 +1,5 @@\n # nodes\n+names = ['a.example.org']\n \
             [peers]\n n2 = '10.0.0.2'\n-api-token = \"(redacted)\"\n\
             +api-token = \"(redacted, changed)\"\n"
        )
    );
    assert_eq!(file(&node), old);
    assert!(!in_force(&node).await.toml.contains("a.example.org"));
    assert!(!node.state().join("configuration").exists());

    // Neither a dry run nor a change leaves a secret in a log or an event.
    apply(&node, text, Mode::Auto).await.unwrap();
    let socket = format!("unix:{}", node.socket().display());
    for arguments in [
        ["logs", "mainstay", "-e", &socket],
        ["logs", "audit", "-e", &socket],
        ["events", "--tail=-1", "-e", &socket],
    ] {
        let shown = node.cli().run(arguments).ok();
        assert!(!shown.contains("swordfish"), "{shown}");
        assert!(!shown.contains("hunter2"), "{shown}");
    }
    let audit = node.cli().run(["logs", "audit"]).ok();
    assert!(audit.contains("/machine.MachineService/ApplyConfiguration"));
}

#[tokio::test]
async fn a_change_made_from_an_older_file_is_refused() {
    let node = TestNode::builder().config(OLD).start();
    let mut change = request("# new\n", Mode::Auto);
    change.expected = Some(OLD.into());
    std::fs::write(node.config_file(), "# by someone else\n").unwrap();
    let refused = send(&node, change.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().contains("changed since"), "{refused}");
    assert_eq!(file(&node), "# by someone else\n");
    change.expected = Some("# by someone else\n".into());
    send(&node, change).await.unwrap();
    assert_eq!(file(&node), "# new\n");
}

#[tokio::test]
async fn of_two_changes_at_once_one_is_aborted() {
    require!(Root);
    let builder = TestNode::builder().config(OLD);
    let slow = builder.scratch().join("slow");
    let disk = FrozenDisk::mount(&slow, 8);
    std::fs::create_dir_all(builder.state()).unwrap();
    std::fs::set_permissions(builder.state(), std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&slow, builder.state().join("configuration")).unwrap();
    let node = builder.inside(disk.namespace()).start();
    let channel = node.connect_locally().await;
    let change = |text: &str| {
        let mut client = MachineServiceClient::new(channel.clone());
        let request = request(text, Mode::Auto);
        Box::pin(async move { client.apply_configuration(request).await })
    };
    // The version before cannot be kept until the disk answers again.
    let frozen = disk.freeze();
    let both = futures_util::future::select(change("# a\n"), change("# b\n"));
    let (first, other) = soon("one of the answers", both).await.into_inner();
    assert_eq!(first.unwrap_err().code(), Code::Aborted);
    drop(frozen);
    soon("the other answer", other).await.unwrap();
    assert!(["# a\n", "# b\n"].contains(&file(&node).as_str()));
}

#[tokio::test]
async fn options_of_the_command_line_win_and_are_named() {
    let node = TestNode::builder()
        .config(OLD)
        .arg("--stop-timeout")
        .arg("4s")
        .start();
    let text = "listen = '127.0.0.1:1'\nstop_timeout = '1s'\n";
    let answer = apply(&node, text, Mode::NoReboot).await.unwrap();
    let warnings = answer.warnings.join("\n");
    for words in ["listen has no effect", "--listen", "--stop-timeout"] {
        assert!(warnings.contains(words), "{warnings}");
    }
    let now = in_force(&node).await;
    assert!(now.toml.contains("stop_timeout = \"4s\""), "{}", now.toml);
    assert!(now.pending_restart.is_empty());
}

#[tokio::test]
async fn a_change_that_locks_the_caller_out_is_warned_of() {
    let node = TestNode::builder().config(OLD).start();
    let admin = node.credentials("alice", &[Role::Admin]);
    let pem = &admin.identity.as_ref().unwrap().0;
    let serial = CertificateInfo::from_pem(pem).unwrap().serial;
    let mut alice = MachineServiceClient::new(node.connect_as(&admin).await);
    let text = format!("[identity]\nrevoked = ['{serial}']\n");
    let answer = soon(
        "the answer",
        alice.apply_configuration(request(&text, Mode::Auto)),
    )
    .await
    .unwrap();
    let warnings = answer.into_inner().messages.remove(0).warnings;
    assert!(warnings[0].contains("your own certificate"), "{warnings:?}");
    let refused = alice.version(()).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
    // Others take it back.
    apply(&node, OLD, Mode::Auto).await.unwrap();
    alice.version(()).await.unwrap();
}

#[tokio::test]
async fn several_nodes_are_configured_in_one_call() {
    let mut fleet = TestFleet::start(1);
    let joined = fleet.join("n1").into_builder().config(OLD).start();
    fleet.nodes.push(joined);
    let others = fleet.peers();
    fleet.nodes[0].reload(&others);
    let mut client = MachineServiceClient::new(fleet.nodes[0].connect().await);
    let text = format!("stop_timeout = '2s'\n{others}");
    let call: Request<_> = to_nodes(request(&text, Mode::Auto), fleet.names());
    let answer = soon("the answers", client.apply_configuration(call)).await;
    let messages = answer.unwrap().into_inner().messages;
    assert_eq!(messages.len(), 2, "{messages:?}");
    for (node, message) in fleet.nodes.iter().zip(&messages) {
        assert!(
            message.metadata.as_ref().unwrap().error.is_empty(),
            "{message:?}"
        );
        assert!(in_force(node).await.toml.contains("stop_timeout = \"2s\""));
    }
}
