//! The command line by itself: help, completions, man pages, contexts, exit codes.

use mainstay_testkit::{Cli, TestNode};

fn alone() -> (tempfile::TempDir, impl Fn() -> Cli) {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().to_owned();
    (home, move || {
        Cli::new(&path).env("MAINSTAY_STATE", path.join("no-node-here"))
    })
}

#[test]
fn help_has_examples_and_exit_codes() {
    let (_home, cli) = alone();
    let help = cli().run(["--help"]).ok();
    insta::assert_snapshot!("help", help);
    for command in [
        "serve",
        "version",
        "health",
        "events",
        "logs",
        "top",
        "run",
        "cell",
        "du",
        "netstat",
        "config",
        "pki",
        "completion",
        "man",
    ] {
        let help = cli().run([command, "--help"]).ok();
        assert!(
            help.contains("Examples:"),
            "{command} --help has no examples:\n{help}"
        );
    }
}

#[test]
fn completions_and_man_pages_cover_every_command() {
    let (home, cli) = alone();
    for shell in ["bash", "zsh", "fish"] {
        let script = cli().run(["completion", shell]).ok();
        for word in ["serve", "events", "pki", "--client-config"] {
            assert!(
                script.contains(word.trim_start_matches('-')),
                "{shell} lacks {word}"
            );
        }
    }
    assert!(cli().run(["man"]).ok().contains(".TH mainstay 1"));
    cli().run(["man", "--dir", "man1"]).ok();
    for page in ["mainstay.1", "mainstay-logs.1", "mainstay-pki-client.1"] {
        assert!(home.path().join("man1").join(page).exists(), "{page}");
    }
}

#[test]
fn bad_usage_says_so_and_exits_with_2() {
    let (_home, cli) = alone();
    let said = cli().run(["version", "--no-such-option"]).failed(2);
    assert!(said.contains("--no-such-option"), "{said}");
    let said = cli().run(["version"]).failed(2);
    assert!(
        said.contains("mainstay config merge"),
        "says how to get a configuration: {said}"
    );
    let said = cli().run(["version", "-e", "a b"]).failed(2);
    assert!(
        said.contains("a b") || said.contains("configuration"),
        "{said}"
    );
    cli()
        .run(["pki", "client", "--name", "x", "--role", "os:god"])
        .failed(2);
    cli()
        .run(["logs", "mainstay", "--since", "yesterday-ish"])
        .failed(2);
    for (args, word) in [
        (&["run"][..], "COMMAND"),
        (&["run", "true"], "true"),
        (&["run", "--memory", "lots", "--", "true"], "--memory"),
        (&["run", "--env", "NAME", "--", "true"], "NAME=VALUE"),
        (&["run", "--workdir", "tmp", "--", "true"], "absolute"),
        (&["cell", "allocate", "a", "--io", "/dev/sda"], "rbps"),
        (&["cell", "start", "a", "--", "true"], "NAME"),
        (&["cell", "stop", "a", "--signal", "STOPPIT"], "TERM"),
        (&["cell", "free"], "NAME"),
    ] {
        let said = cli().run(args).failed(2);
        assert!(said.contains(word), "{args:?}: {said}");
    }
}

#[test]
fn contexts_are_merged_listed_chosen_and_removed() {
    let node = TestNode::start();
    let (home, cli) = alone();
    let file = node.state().join("client.yaml").display().to_string();
    cli().run(["config", "merge", &file]).ok();
    cli().run(["version"]).ok();
    let twice = cli().run(["config", "merge", &file]);
    assert_eq!(twice.code, 0, "{}", twice.stderr);
    let contexts = cli().run(["config", "list", "-o", "json"]).json();
    let contexts = contexts.as_array().unwrap();
    assert!(!contexts.is_empty());
    let name = contexts[0]["context"].as_str().unwrap().to_owned();
    assert_eq!(contexts[0]["role"], "os:admin");

    cli()
        .run([
            "config",
            "add",
            "local",
            "--socket",
            &node.socket().display().to_string(),
        ])
        .ok();
    cli().run(["config", "use", "local"]).ok();
    let info = cli().run(["config", "info", "-o", "json"]).json();
    assert_eq!(info["context"], "local");
    cli().run(["version"]).ok();
    cli().run(["version", "--context", &name]).ok();

    cli().run(["config", "remove", "local"]).ok();
    let said = cli().run(["config", "use", "local"]).failed(6);
    assert!(said.contains(&name), "names the contexts there are: {said}");

    let path = home.path().join(".config/mainstay/config.yaml");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(
        std::fs::metadata(&path).unwrap().permissions().mode() & 0o777,
        0o600
    );
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = cli().run(["config", "list"]).failed(2);
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn a_node_that_cannot_be_reached_exits_with_3_and_one_line() {
    let mut node = TestNode::start();
    assert!(node.stop().success());
    let said = node.cli().run(["version"]).failed(3);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("is mainstay serving there?"), "{said}");
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let node = TestNode::start();
    for _ in 0..3 {
        node.cli().run(["version"]).ok();
    }
    let mut child = node.cli().spawn(["logs", "mainstay", "-f"]);
    drop(child.stdout.take());
    node.cli().run(["version"]).ok();
    let status = mainstay_testkit::wait_for_exit(&mut child);
    assert!(status.success(), "{status:?}");
}
