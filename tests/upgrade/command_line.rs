//! `mainstay upgrade`, `rollback`, `slots` and `upgrade-image`, on one node and on many.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::{TestFleet, TestNode, soon, to_nodes};

use super::builds::{NEXT, OWN, TestImage, version};
use super::upgrade_node::{assert_runs, running_version};

#[tokio::test]
async fn upgrade_and_rollback_wait_and_show_progress() {
    let image = TestImage::next();
    let node = TestNode::start();
    assert_eq!(
        node.cli().run(["slots", "-o", "json"]).json()[0]["slots"],
        serde_json::json!([])
    );
    let output = node.cli().run(["upgrade", image.path()]);
    assert!(
        output.stderr.contains("task writeSlot"),
        "{}",
        output.stderr
    );
    assert_eq!(output.ok(), "upgraded\n");
    assert_runs(&node, NEXT, "B").await;

    let shown = node.cli().run(["slots"]).ok();
    assert!(
        shown.contains("upgrade from 0.1.0 to 0.2.0-next confirmed"),
        "{shown}"
    );
    let said = node.cli().run(["rollback", "-o", "json"]).json();
    assert_eq!(
        (&said[0]["result"], &said[0]["sequence"]),
        (&"done".into(), &"rollback".into())
    );
    assert_runs(&node, OWN, "A").await;

    let staged = node.cli().run(["upgrade", "--stage", image.path()]).ok();
    assert_eq!(staged, "staged; the next start of the node switches\n");
    assert!(node.cli().run(["slots"]).ok().contains("staged"));
    // On the node, by its path; instead of what is staged.
    let on_node = node.cli().run(["upgrade", "--image", image.path()]).ok();
    assert_eq!(on_node, "upgraded\n");
    assert_runs(&node, NEXT, "B").await;
}

#[tokio::test]
async fn a_failed_upgrade_exits_with_1_and_says_why() {
    let node = TestNode::start();
    let output = node
        .cli()
        .run(["upgrade", TestImage::broken("exit").path()])
        .failed(1);
    assert!(
        output.contains("upgrade failed: phase reboot: task startOnTrial"),
        "{output}"
    );
    assert!(
        output.contains("the new version ended (exit code 3)"),
        "{output}"
    );
    assert_runs(&node, OWN, "A").await;
    let error = node.cli().run(["upgrade", "/none.tar"]).failed(1);
    assert!(error.contains("cannot read /none.tar"), "{error}");
    let error = node.cli().run(["upgrade", "/etc"]).failed(2);
    assert!(error.contains("is no file"), "{error}");
    let error = node
        .cli()
        .run(["upgrade", "--image", "registry/mainstay:1"])
        .failed(7);
    assert!(error.contains("need the image store"), "{error}");
    node.cli().run(["upgrade"]).failed(2);
}

/// Three nodes, one after another, while a client asks all of them all the time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fleet_is_upgraded_while_a_client_asks_all_nodes() {
    let image = TestImage::next();
    let fleet = TestFleet::start(3);
    let done = Arc::new(AtomicBool::new(false));
    let (names, stop) = (fleet.names(), Arc::clone(&done));
    let (address, admin) = (fleet.nodes[0].listen(), fleet.nodes[0].admin());
    // Per node, the answers; at most one node is missing in any of them.
    let asker = tokio::spawn(async move {
        let mut rounds = 0;
        while !stop.load(Ordering::Relaxed) {
            let Ok(channel) = mainstay_testkit::connect_tls(address, &admin).await else {
                continue;
            };
            let mut machine = MachineServiceClient::new(channel);
            while let Ok(answer) = machine.version(to_nodes((), &names)).await {
                let messages = answer.into_inner().messages;
                let failed = messages.iter().filter(|message| {
                    message
                        .metadata
                        .as_ref()
                        .is_some_and(|it| !it.error.is_empty())
                });
                assert!(failed.count() <= 1, "{messages:?}");
                rounds += 1;
                if stop.load(Ordering::Relaxed) {
                    break;
                }
            }
        }
        rounds
    });
    let cli = fleet.nodes[0].cli();
    let list = fleet.list();
    let path = image.path.clone();
    let upgraded = tokio::task::spawn_blocking(move || {
        let arguments = ["upgrade", path.to_str().unwrap(), "-n", &list, "-o", "json"];
        cli.run(arguments).json()
    });
    let said = soon("the upgrade of three nodes", upgraded).await.unwrap();
    let results: Vec<_> = said
        .as_array()
        .unwrap()
        .iter()
        .map(|row| &row["result"])
        .collect();
    assert_eq!(results, ["done"; 3], "{said}");
    done.store(true, Ordering::Relaxed);
    assert!(soon("the client", asker).await.unwrap() > 3);
    for node in &fleet.nodes {
        assert_eq!(running_version(node).await, NEXT);
    }
}

#[tokio::test]
async fn the_first_node_that_fails_ends_a_rolling_upgrade() {
    let fleet = TestFleet::start(2);
    let image = TestImage::broken("exit");
    let cli = fleet.nodes[0].cli();
    let names = fleet.names();
    let order = format!("{},{}", names[1], names[0]);
    let output = cli.run(["upgrade", image.path(), "-n", &order, "-o", "json"]);
    assert_eq!(output.code, 8, "{}", output.stderr);
    let rows: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(
        (&rows[0]["result"], &rows[1]["result"]),
        (&"failed".into(), &"untouched".into())
    );
    for node in &fleet.nodes {
        assert_eq!(running_version(node).await, OWN);
    }
}

#[test]
fn images_are_built_signed_and_shown() {
    let dir = tempfile::TempDir::new().unwrap();
    let pair = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(dir.path().join("key"), pair.serialize_pem()).unwrap();
    std::fs::write(dir.path().join("key.pub"), pair.public_key_pem()).unwrap();
    let program = version(NEXT, 1);
    let cli = || mainstay_testkit::Cli::new(dir.path());
    let build = [
        "upgrade-image",
        "build",
        "--binary",
        program.to_str().unwrap(),
        "--no-gzip",
    ];
    let signed = [&build[..], &["--sign-key", "key", "signed.tar"]].concat();
    cli().run(signed).ok();
    cli().run([&build[..], &["plain.tar"]].concat()).ok();
    let show = ["upgrade-image", "show", "--key", "key.pub", "-o", "json"];
    let shown = cli().run([&show[..], &["signed.tar"]].concat()).json();
    assert_eq!(
        (&shown["version"], &shown["signature"]),
        (&NEXT.into(), &"verified".into())
    );
    let error = cli().run([&show[..], &["plain.tar"]].concat()).failed(1);
    assert!(error.contains("it has no signature"), "{error}");
    let error = cli()
        .run(["upgrade-image", "build", "--binary", "key", "x.tar"])
        .failed(1);
    assert!(error.contains("key is no mainstay"), "{error}");
    assert!(!dir.path().join("x.tar").exists());
    let left = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(left, 4, "no partial file is left");
}
