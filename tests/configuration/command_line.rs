//! `mainstay config node`

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use mainstay_testkit::{Cli, TestFleet, TestNode};

use super::{file, in_force};

const OLD: &str = "# the old one\nstop_timeout = '20s'\n";

/// Writes a file of the test and returns its path.
fn written(node: &TestNode, name: &str, text: &str) -> String {
    let path = node.scratch().join(name);
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

/// An editor that runs these lines of shell; `$1` is the file.
fn editor(node: &TestNode, lines: &str) -> String {
    let path: PathBuf = node.scratch().join("editor");
    std::fs::write(&path, format!("#!/bin/sh\nset -e\n{lines}\n")).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path.display().to_string()
}

#[tokio::test]
async fn show_diff_and_apply() {
    let node = TestNode::builder().config(OLD).start();
    let shown = node.cli().run(["config", "node", "show"]).ok();
    let header = format!("# {}\n", node.config_file().display());
    assert!(shown.starts_with(&header), "{shown}");
    assert!(shown.contains("stop_timeout = \"20s\""), "{shown}");

    let new = written(&node, "new.toml", "# the new one\nstop_timeout = '30s'\n");
    let output = node.cli().run(["config", "node", "diff", &new]);
    assert!(
        output.stderr.contains("at once: stop_timeout"),
        "{}",
        output.stderr
    );
    let difference = output.ok();
    assert!(
        difference.contains("-stop_timeout = '20s'\n"),
        "{difference}"
    );
    assert!(
        difference.contains("+stop_timeout = '30s'\n"),
        "{difference}"
    );
    assert_eq!(file(&node), OLD);

    let said = node.cli().run(["config", "node", "apply", &new]).ok();
    assert_eq!(said, "applied, keys changed at once: stop_timeout\n");
    let output = node.cli().run(["config", "node", "diff", &new]);
    assert!(output.stderr.contains("unchanged"), "{}", output.stderr);
    assert_eq!(output.ok(), "");
    let json = node
        .cli()
        .run(["config", "node", "apply", &new, "-o", "json"])
        .json();
    assert_eq!(json[0]["mode"], "NO_REBOOT", "{json}");
}

#[tokio::test]
async fn a_trial_is_confirmed_if_the_node_answers() {
    let node = TestNode::builder().config(OLD).start();
    let new = written(&node, "new.toml", "stop_timeout = '30s'\n");
    let apply = ["config", "node", "apply", &new, "--mode", "try"];
    let said = node.cli().run([&apply[..], &["--confirm"]].concat()).ok();
    assert_eq!(said, "applied, no key changes\n");
    assert_eq!(file(&node), "stop_timeout = '30s'\n");
    assert_eq!(in_force(&node).await.reverts_at, None);

    let other = written(&node, "other.toml", "stop_timeout = '40s'\n");
    let arguments = ["config", "node", "apply", &other, "--mode", "try"];
    node.cli()
        .run([&arguments[..], &["--try-timeout", "1h"]].concat())
        .ok();
    let shown = node.cli().run(["config", "node", "show"]);
    assert!(shown.stderr.contains("on trial"), "{}", shown.stderr);
    let failed = node
        .cli()
        .run(["config", "node", "apply", &other, "--confirm"]);
    assert!(failed.failed(2).contains("--mode try"));
}

#[test]
fn validate_lists_every_error_here_and_on_the_node() {
    let node = TestNode::builder().config(OLD).start();
    let bad = written(&node, "bad.toml", "listen = 1\n[log]\nlevle = 'info'\n");
    let here = Cli::new(node.scratch());
    let said = here.run(["config", "node", "validate", &bad]).failed(1);
    assert_eq!(said.lines().count(), 2, "{said}");
    assert!(said.contains("bad.toml: line 1, "), "{said}");
    assert!(
        said.contains("bad.toml: line 3, column 1: unknown field"),
        "{said}"
    );
    let json = Cli::new(node.scratch()).run(["config", "node", "validate", &bad, "-o", "json"]);
    assert_eq!(json.code, 1);
    let json: serde_json::Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(json["problems"][1]["line"], 3);
    let said = node
        .cli()
        .run(["config", "node", "validate", &bad, "--on-node"])
        .failed(2);
    assert!(
        said.contains("line 1, ") && said.contains("line 3, "),
        "{said}"
    );

    let good = written(&node, "good.toml", "stop_timeout = '30s'\n");
    let said = Cli::new(node.scratch())
        .run(["config", "node", "validate", &good])
        .ok();
    assert!(said.ends_with("good.toml is valid\n"), "{said}");
    let said = node
        .cli()
        .run(["config", "node", "validate", &good, "--on-node"])
        .ok();
    assert_eq!(said, "valid, keys changed at once: stop_timeout\n");
    assert_eq!(file(&node), OLD);
}

#[test]
fn an_edited_file_is_applied() {
    let node = TestNode::builder().config(OLD).start();
    let editor = editor(&node, "sed -i 's/20s/25s/' \"$1\"");
    let edit = |editor: &str| {
        node.cli()
            .env("EDITOR", editor)
            .run(["config", "node", "edit"])
    };
    let output = edit(&editor);
    assert!(
        output.stderr.contains("+stop_timeout = '25s'"),
        "{}",
        output.stderr
    );
    assert_eq!(output.ok(), "applied, keys changed at once: stop_timeout\n");
    assert_eq!(file(&node), "# the old one\nstop_timeout = '25s'\n");
    let output = edit("true");
    assert!(output.stderr.contains("not changed"), "{}", output.stderr);
    output.ok();
    assert!(edit("false").failed(1).contains("nothing was applied"));
    assert!(edit("/no/such/editor").failed(1).contains("set EDITOR"));
}

#[test]
fn an_edited_file_that_cannot_be_applied_is_kept() {
    let node = TestNode::builder().config(OLD).start();
    let temporary = node.scratch().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let edit = |lines: &str| {
        let editor = editor(&node, lines);
        let cli = node.cli().env("EDITOR", editor).env("TMPDIR", &temporary);
        cli.run(["config", "node", "edit"])
    };
    let kept = || -> Vec<String> {
        let entries = std::fs::read_dir(&temporary).unwrap();
        entries
            .map(|entry| std::fs::read_to_string(entry.unwrap().path()).unwrap())
            .collect()
    };
    let said = edit("echo 'nothing = 1' > \"$1\"").failed(2);
    assert!(said.contains("line 1, column 1: unknown field"), "{said}");
    assert!(said.contains("the edited text is kept in "), "{said}");
    assert_eq!(kept(), ["nothing = 1\n"]);
    assert_eq!(file(&node), OLD);
    std::fs::remove_dir_all(&temporary).unwrap();
    std::fs::create_dir(&temporary).unwrap();

    // Somebody else changes the file meanwhile.
    let path = node.config_file();
    let lines = format!(
        "echo '# mine' > \"$1\"; echo '# theirs' > {}",
        path.display()
    );
    let said = edit(&lines).failed(1);
    assert!(said.contains("changed since it was read"), "{said}");
    assert_eq!(kept(), ["# mine\n"]);
    assert_eq!(file(&node), "# theirs\n");
}

#[test]
fn several_nodes_show_and_apply() {
    let mut fleet = TestFleet::start(1);
    let joined = fleet.join("n1").into_builder().config(OLD).start();
    fleet.nodes.push(joined);
    let peers = fleet.peers();
    fleet.nodes[0].reload(&peers);
    let node = &fleet.nodes[0];
    let new = written(node, "new.toml", &format!("stop_timeout = '2s'\n{peers}"));
    let list = fleet.list();
    let said = node
        .cli()
        .run(["-n", &list, "config", "node", "apply", &new])
        .ok();
    assert_eq!(said.lines().count(), 2, "{said}");
    for (name, line) in fleet.names().iter().zip(said.lines()) {
        assert!(line.starts_with(&format!("{name}: applied")), "{said}");
    }
    let shown = node
        .cli()
        .run(["-n", &list, "config", "node", "show", "-o", "json"])
        .json();
    for entry in shown.as_array().unwrap() {
        let toml = entry["toml"].as_str().unwrap();
        assert!(toml.contains("stop_timeout = \"2s\""), "{toml}");
    }
    // One that fails does not keep the other from it, and is named.
    let bad = written(
        node,
        "bad.toml",
        "stop_timeout = '2s'\npods_listen = '127.0.0.1:0'\n",
    );
    let arguments = [
        "-n",
        &list,
        "config",
        "node",
        "apply",
        &bad,
        "--mode",
        "no-reboot",
    ];
    let said = node.cli().run(arguments).failed(1);
    assert!(said.contains("pods_listen"), "{said}");
}
