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
        assert!(script.contains("mainstay"), "{shell}: {script}");
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

#[test]
fn without_arguments_the_help_is_printed() {
    let (_home, cli) = alone();
    let bare = cli().env("MAINSTAY_CONTEXT", "prod").run::<&str>([]);
    assert!(bare.stdout.contains("Global options:"), "{}", bare.stdout);
    assert_eq!((bare.code, bare.stderr.as_str()), (0, ""));
}

#[test]
fn options_without_effect_are_errors() {
    let (_home, cli) = alone();
    for args in [
        &["ls", "--depth", "2", "/"][..],
        &["ls", "--xattrs", "/"],
        &["dmesg", "--new"],
        &["serve", "-n", "x"],
        &["serve", "-o", "json"],
        &["completion", "bash", "-e", "x"],
        &["man", "--timeout", "1s"],
        &["config", "list", "-n", "x"],
        &["config", "use", "x", "-o", "json"],
        &["config", "add", "x", "--socket", "/s", "-e", "y"],
        &["pki", "show", "-e", "x"],
        &["pki", "ca", "--out", "x", "--context", "y"],
        &["cat", "/etc/passwd", "-o", "json"],
        &["cp", "/etc/passwd", ".", "-o", "yaml"],
        &["run", "-o", "json", "--", "true"],
        &["version", "--client", "-n", "x"],
    ] {
        let output = cli().run(args);
        assert_eq!(output.code, 2, "{args:?}: {}", output.stderr);
        let said = output.stderr;
        let named = ["has no effect", "required", "needs -o", "omit either"];
        assert!(
            named.iter().any(|words| said.contains(words)),
            "{args:?}: {said}"
        );
    }
}

#[test]
fn names_of_earlier_node_clients_work() {
    let node = TestNode::start();
    let run = |args: &[&str]| node.cli().run(args).ok();
    assert_eq!(run(&["list", "/etc"]), run(&["ls", "/etc"]));
    assert!(run(&["diskfree"]).starts_with("FILESYSTEM"));
    assert!(run(&["config", "contexts"]).starts_with("CURRENT"));
    let short = run(&["version", "--short"]);
    assert_eq!(short.lines().count(), 3, "{short}");
    assert!(short.contains(&node.listen().to_string()), "{short}");
    let memory = run(&["memory", "-v"]);
    assert!(memory.starts_with("NAME"), "{memory}");
    for name in ["memtotal", "committedas", "hugepagestotal"] {
        assert!(
            memory.lines().any(|line| line.starts_with(name)),
            "{name}: {memory}"
        );
    }
    run(&["copy", "/etc/hostname", "copied"]);
    let snapshot = run(&["dashboard", "--once"]);
    assert!(
        snapshot.contains("PROCESSES") || snapshot.contains("USER"),
        "{snapshot}"
    );
}

#[test]
fn the_node_is_named_only_when_nodes_are() {
    let node = TestNode::start();
    let name = node.listen().to_string();
    for command in ["ps", "free", "df", "health", "netstat"] {
        let plain = node.cli().run([command]).ok();
        assert!(!plain.starts_with("NODE"), "{command}: {plain}");
        let asked = node.cli().run([command, "-n", &name]).ok();
        assert!(asked.starts_with("NODE"), "{command}: {asked}");
        assert!(asked.contains(&name), "{command}: {asked}");
    }
}

#[test]
fn a_shared_client_configuration_is_merged_as_the_shell_wrote_it() {
    let node = TestNode::start();
    let (home, cli) = alone();
    let issue = [
        "pki",
        "client",
        "--name",
        "alice",
        "--role",
        "os:reader",
        "--ttl",
        "24h",
    ];
    let file = home.path().join("alice.yaml");
    std::fs::write(&file, node.cli().run(issue).ok()).unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let shown = cli().run(["pki", "show", "alice.yaml"]).ok();
    assert!(shown.contains("os:reader"), "{shown}");
    let merged = cli().run(["config", "merge", "alice.yaml"]);
    assert_eq!(merged.code, 0, "{}", merged.stderr);
    assert!(
        merged.stderr.contains("can be read by others"),
        "{}",
        merged.stderr
    );
    cli().run(["version"]).ok();
    // It is not the mode that is wrong with a file of another kind.
    for args in [
        ["config", "merge", "/etc/passwd"],
        ["version", "--client-config", "/etc/passwd"],
    ] {
        let said = cli().run(args).failed(2);
        assert!(!said.contains("chmod"), "{said}");
    }
    let said = cli()
        .run(["version", "--client-config", "alice.yaml"])
        .failed(2);
    assert!(said.contains("chmod 600"), "{said}");
}

#[test]
fn errors_have_no_links_to_the_manuals_of_libraries() {
    // Speaks TLS up to the point where it closes the connection without a word.
    let node = TestNode::start();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let closing = std::thread::spawn(move || drop(listener.accept().unwrap()));
    let said = node.cli().run(["version", "-e", &address]).failed(3);
    closing.join().unwrap();
    assert!(!said.contains("http"), "{said}");
}
