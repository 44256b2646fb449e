//! Common errors: what failed, on what, why, and what to do, with the exit code.

use std::os::unix::net::UnixListener;
use std::process::Command;

use mainstay_testkit::{Cli, OnTerminal, TestFleet, TestNode, binary};

use super::{filters, hostname};

/// Runs a command that must fail; returns its exit code and stderr.
#[track_caller]
fn failed(cli: Cli, args: &[&str]) -> String {
    let output = cli.run(args);
    assert_ne!(output.code, 0, "{args:?} succeeded: {}", output.stdout);
    assert!(
        !output.stderr.contains('\x1b'),
        "colours without a terminal"
    );
    format!("exit code: {}\n{}", output.code, output.stderr)
}

#[test]
fn errors_before_a_connection_match_their_snapshots() {
    let node = TestNode::start();
    let _filters = filters(&node);
    let home = tempfile::tempdir().unwrap();
    let alone = || Cli::new(home.path()).env("MAINSTAY_STATE", home.path().join("no-node-here"));
    insta::assert_snapshot!("no-client-configuration", failed(alone(), &["version"]));
    for (name, args) in [
        ("unknown-option", &["version", "--no-such-option"][..]),
        ("unknown-command", &["versions"]),
        ("missing-command", &["run"]),
        ("bad-endpoint", &["version", "-e", "a b"]),
        ("bad-endpoint-port", &["version", "-e", "node1:0"]),
        ("bad-node", &["version", "-n", "\u{e9}"]),
        ("unknown-context", &["version", "--context", "nowhere"]),
        (
            "missing-client-configuration",
            &["version", "--client-config", "nowhere.yaml"],
        ),
        ("bad-size", &["cell", "allocate", "web", "--memory", "lots"]),
        (
            "bad-io-limit",
            &["cell", "allocate", "web", "--io", "/dev/sda:speed=1"],
        ),
        (
            "bad-signal",
            &["cell", "stop", "web", "--signal", "STOPPIT"],
        ),
        ("bad-time", &["logs", "mainstay", "--since", "yesterday"]),
        ("bad-duration", &["events", "--since", "yesterday"]),
        (
            "bad-reconnect",
            &["run", "--reconnect", "foo", "--", "true"],
        ),
        (
            "bad-role",
            &["pki", "client", "--name", "x", "--role", "os:god"],
        ),
        (
            "bad-seccomp-profile",
            &["run", "--seccomp", "nowhere.json", "--", "true"],
        ),
        ("top-without-terminal", &["top"]),
        ("top-json", &["top", "-o", "json"]),
    ] {
        let shown = failed(node.cli(), args);
        // The context of a node is called after its host.
        let shown = shown.replace(&format!("has {}\n", hostname()), "has HOSTNAME\n");
        insta::assert_snapshot!(name, shown);
    }
}

#[test]
fn a_full_disk_behind_stdout_is_named() {
    let node = TestNode::start();
    for args in [
        &["version"][..],
        &["ls", "/"],
        &["cat", "/proc/version"],
        &["run", "--no-stdin", "--", "echo", "text"],
    ] {
        let full = std::fs::File::options().write(true).open("/dev/full");
        let output = Command::new(binary())
            .args(args)
            .env("HOME", node.scratch())
            .env("MAINSTAY_STATE", node.state())
            .stdin(std::process::Stdio::null())
            .stdout(full.unwrap())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {said}");
        let expected = "error: cannot write to stdout: No space left on device";
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}

#[test]
fn errors_of_connections_match_their_snapshots() {
    let node = TestNode::start();
    let other = TestNode::start();
    let _filters = filters(&node);
    let foreign = other.state().join("client.yaml").display().to_string();
    let endpoint = node.listen().to_string();
    let foreign_ca = ["version", "--client-config", &foreign, "-e", &endpoint];
    insta::assert_snapshot!("wrong-ca", failed(node.cli(), &foreign_ca));

    let missing = ["version", "-e", "unix:nowhere.sock"];
    insta::assert_snapshot!("missing-socket", failed(node.cli(), &missing));
    let _mute = UnixListener::bind(node.scratch().join("mute.sock")).unwrap();
    let mute = ["version", "-e", "unix:mute.sock", "--timeout", "300ms"];
    insta::assert_snapshot!("timeout", failed(node.cli(), &mute));

    let mut node = node;
    assert!(node.stop().success());
    insta::assert_snapshot!("connection-refused", failed(node.cli(), &["version"]));
}

#[test]
fn errors_of_the_node_match_their_snapshots() {
    let node = TestNode::start();
    let _filters = filters(&node);
    let issue = [
        "pki",
        "client",
        "--name",
        "r",
        "--role",
        "os:reader",
        "--out",
        "reader.yaml",
    ];
    node.cli().run(issue).ok();
    for (name, args) in [
        ("log-not-found", &["logs", "nothing"][..]),
        ("file-not-found", &["cat", "/no/such/file"]),
        ("relative-path", &["cat", "etc/passwd"]),
        ("cell-not-found", &["cell", "list", "nowhere"]),
        ("cell-stats-not-found", &["cell", "stats", "nowhere"]),
        (
            "executable-not-found",
            &["cell", "logs", "nowhere", "server"],
        ),
        ("bad-cell-name", &["cell", "allocate", "no_label"]),
        ("program-not-found", &["run", "--", "no-such-program"]),
        ("program-not-executable", &["run", "--", "/etc/passwd"]),
        ("service-not-found", &["health", "no.such.Service"]),
        (
            "permission-denied",
            &["--client-config", "reader.yaml", "cell", "allocate", "web"],
        ),
    ] {
        insta::assert_snapshot!(name, failed(node.cli(), args));
    }
}

#[test]
fn errors_of_single_nodes_match_their_snapshots() {
    let mut fleet = TestFleet::start(2);
    let list = fleet.list();
    let names = fleet.names();
    let _filters = filters(&fleet.nodes[0]);
    fleet.nodes[1].kill();
    let output = fleet.nodes[0].cli().run(["-n", &list, "health"]);
    assert_eq!(output.code, 8);
    // Only the table of the node that answered, and one line for the other.
    let shown = format!("{}{}", output.stdout, output.stderr);
    let shown = shown
        .replace(&names[0], "NODE1")
        .replace(&names[1], "NODE2");
    insta::assert_snapshot!("some-nodes-failed", shown);
    let one = failed(fleet.nodes[0].cli(), &["-n", &names[1], "health"]);
    insta::assert_snapshot!("only-node-failed", one.replace(&names[1], "NODE2"));
    let two = failed(fleet.nodes[0].cli(), &["-n", &list, "run", "--", "true"]);
    insta::assert_snapshot!("too-many-nodes", two);
}

#[test]
fn errors_are_coloured_on_a_terminal_unless_no_color_is_set() {
    let home = tempfile::tempdir().unwrap();
    for (no_color, coloured) in [("", true), ("1", false)] {
        let mut command = Command::new(binary());
        command
            .args(["version", "-e", "unix:nowhere.sock"])
            .env_clear()
            .env("HOME", home.path())
            .env("TERM", "xterm-256color")
            .env("NO_COLOR", no_color)
            .current_dir(home.path());
        let mut terminal = OnTerminal::run(&command, 120, 10);
        terminal.wait_for("is mainstay serving there?");
        assert_eq!(terminal.has_colours(), coloured, "NO_COLOR={no_color:?}");
        assert_eq!(terminal.ended().code(), Some(3));
    }
}
