//! Completion in real shells, with values of a real node.

use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

use mainstay_testkit::{OnTerminal, TestNode, binary};

use crate::swept_node::SweptNode;

/// Returns a `PATH` on which `mainstay` is the binary under test.
fn path_with_binary(dir: &Path) -> String {
    let bin = dir.join("bin");
    std::fs::create_dir_all(&bin).unwrap();
    let link = bin.join("mainstay");
    if !link.exists() {
        std::os::unix::fs::symlink(binary(), &link).unwrap();
    }
    format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
}

/// A shell of someone who administers the node.
fn shell(node: &TestNode, program: &str) -> Command {
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("HOME", node.scratch())
        .env("PATH", path_with_binary(node.scratch()))
        .env("MAINSTAY_STATE", node.state())
        .env("TERM", "dumb")
        .current_dir(node.scratch())
        .stdin(Stdio::null());
    command
}

#[track_caller]
fn lines(mut command: Command) -> Vec<String> {
    let output = command.output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(stderr, "", "a completion is silent");
    let stdout = String::from_utf8(output.stdout).unwrap();
    stdout.lines().map(str::to_owned).collect()
}

/// Completions of one line, of which one must succeed: a node on a loaded machine may take longer
/// than a completion waits.
const ATTEMPTS: usize = 5;

/// Asks until the answer is the expected one.
#[track_caller]
fn assert_offers(ask: impl Fn() -> Vec<String>, expected: &[&str]) {
    let mut offered = Vec::new();
    for _ in 0..ATTEMPTS {
        offered = ask();
        if offered == expected {
            return;
        }
    }
    assert_eq!(offered, expected);
}

/// Returns what bash offers for a line, with the words as bash itself splits them.
#[track_caller]
fn in_bash(node: &TestNode, line: &str) -> Vec<String> {
    let mut bash = shell(node, "bash");
    let script = r#"
        source <(mainstay completion bash)
        COMP_LINE=$1 COMP_POINT=${#1} COMP_TYPE=9
        # Splits at spaces, ":" and "=", which are words of their own.
        read -r -a COMP_WORDS <<<"$(sed 's/[:=]/ & /g' <<<"$1")"
        [[ $1 == *" " ]] && COMP_WORDS+=("")
        [[ $1 == *[:=] ]] && COMP_WORDS+=("")
        COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
        _mainstay mainstay "${COMP_WORDS[COMP_CWORD]}" ""
        printf '%s\n' "${COMPREPLY[@]}"
    "#;
    bash.args(["--norc", "-c", script, "bash", line]);
    lines(bash)
}

#[track_caller]
fn in_fish(node: &TestNode, line: &str) -> Vec<String> {
    let mut fish = shell(node, "fish");
    let script = "mainstay completion fish | source; complete -C \"$argv[1]\"";
    fish.args(["--no-config", "-c", script, line]);
    let words = lines(fish).into_iter();
    words
        .map(|line| line.split('\t').next().unwrap().to_owned())
        .collect()
}

/// A node with two cells, one of them with executables.
fn node_with_cells() -> SweptNode {
    let node = SweptNode::start("completion");
    for args in [
        &["cell", "allocate", "web"][..],
        &["cell", "allocate", "worker"],
        &["cell", "start", "web", "server", "--", "sleep", "1000"],
    ] {
        node.cli().run(args).ok();
    }
    node
}

#[test]
fn bash_completes_values_of_the_node() {
    let node = node_with_cells();
    let tree = node.scratch().join("tree");
    std::fs::create_dir_all(tree.join("alpha")).unwrap();
    std::fs::write(tree.join("album"), "").unwrap();
    let path = tree.to_str().unwrap();
    let (album, alpha) = (format!("{path}/album"), format!("{path}/alpha/"));
    let listen = node.listen().to_string();
    let (host, port) = listen.rsplit_once(':').unwrap();
    let contexts = contexts(&node);
    let contexts: Vec<&str> = contexts.iter().map(String::as_str).collect();
    for (line, offered) in [
        ("mainstay vers", &["version"][..]),
        ("mainstay logs aud", &["audit"]),
        ("mainstay cell stop w", &["web", "worker"]),
        ("mainstay cell logs web s", &["server"]),
        ("mainstay cell logs worker s", &[""]),
        ("mainstay run --cell wo", &["worker"]),
        (&format!("mainstay ls {path}/al"), &[&album, &alpha]),
        (&format!("mainstay cp {path}/alp"), &[&alpha]),
        (&format!("mainstay version -n {}", &host[..4]), &[&listen]),
        // Of an endpoint bash replaces only the part after the colon.
        (
            &format!("mainstay version -n {host}:{}", &port[..1]),
            &[port],
        ),
        ("mainstay config use ", &contexts),
        ("mainstay --context ", &contexts),
    ] {
        assert_offers(|| in_bash(&node, line), offered);
    }
}

#[test]
fn commands_are_offered_by_name_and_aliases_only_where_no_name_fits() {
    let node = TestNode::start();
    let offered = in_bash(&node, "mainstay ");
    for (name, alias) in [
        ("top", "dashboard"),
        ("ps", "processes"),
        ("ls", "list"),
        ("cp", "copy"),
        ("df", "mounts"),
    ] {
        assert!(offered.iter().any(|word| word == name), "{offered:?}");
        assert!(!offered.iter().any(|word| word == alias), "{offered:?}");
    }
    assert_eq!(in_bash(&node, "mainstay proc"), ["processes"]);
    assert_eq!(
        in_bash(&node, "mainstay processes --int"),
        in_bash(&node, "mainstay ps --int")
    );
}

/// Returns the names of the contexts.
fn contexts(node: &TestNode) -> Vec<String> {
    let all = node.cli().run(["config", "list", "-o", "json"]).json();
    let names = all.as_array().unwrap().iter();
    names
        .map(|context| context["context"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn what_a_shell_would_expand_is_escaped() {
    let node = TestNode::start();
    let tree = node.scratch().join("tree");
    std::fs::create_dir(&tree).unwrap();
    std::fs::write(tree.join("x$(touch owned)`id` *"), "").unwrap();
    std::fs::write(tree.join("y\x1b[2J"), "").unwrap();
    let path = tree.to_str().unwrap();
    let complete = |line: &str| in_bash(&node, line);
    let escaped = format!(r"{path}/x\$\(touch\ owned\)\`id\`\ \*");
    let line = format!("mainstay ls {path}/x");
    assert_offers(|| complete(&line), &[&escaped]);
    assert_eq!(complete(&format!("mainstay ls \"{path}/x")), [""]);
    // A terminal would act on this one.
    assert_eq!(complete(&format!("mainstay ls {path}/y")), [""]);
}

#[test]
fn fish_completes_values_of_the_node() {
    let node = node_with_cells();
    for (line, offered) in [
        ("mainstay vers", &["version"][..]),
        ("mainstay logs aud", &["audit"]),
        ("mainstay cell stop w", &["web", "worker"]),
        ("mainstay cell logs web s", &["server"]),
    ] {
        assert_offers(|| in_fish(&node, line), offered);
    }
}

/// Types a line and a tab on a terminal, and waits for the completed line.
fn types_and_tabs(mut command: Command, setup: &str, typed: &str, completed: &str) {
    command.env("PS1", "ready> ").env("TERM", "xterm");
    let mut terminal = OnTerminal::run(&command, 100, 20);
    terminal.press(setup);
    terminal.press("\n");
    // Printed by the shell, not typed: the set-up is complete.
    terminal.wait_for("set up");
    terminal.press(typed);
    terminal.wait_for(typed);
    // On a loaded machine the node may not answer the first in time; later ones add to the line.
    terminal.press(&"\t".repeat(ATTEMPTS));
    terminal.wait_for(completed);
}

#[test]
fn bash_completes_at_its_prompt() {
    let node = node_with_cells();
    let mut bash = shell(&node, "bash");
    bash.args(["--norc", "--noprofile", "-i"]);
    let setup = "source <(mainstay completion bash); echo 'set' 'up'";
    types_and_tabs(
        bash,
        setup,
        "mainstay cell logs web ser",
        "mainstay cell logs web server",
    );
}

#[test]
fn zsh_completes_at_its_prompt() {
    let node = node_with_cells();
    let functions = node.scratch().join("functions");
    std::fs::create_dir(&functions).unwrap();
    let script = node.cli().run(["completion", "zsh"]).ok();
    std::fs::write(functions.join("_mainstay"), script).unwrap();
    let mut zsh = shell(&node, "zsh");
    zsh.args(["-f", "-i"]);
    // As an installed file, which zsh loads at the first completion.
    let setup = "fpath+=($PWD/functions); autoload -Uz compinit; compinit -u; echo 'set' 'up'";
    types_and_tabs(
        zsh,
        setup,
        "mainstay cell logs web ser",
        "mainstay cell logs web server",
    );
}

#[test]
fn a_node_that_does_not_answer_has_no_values_and_no_error() {
    let node = TestNode::start();
    let mute = UnixListener::bind(node.scratch().join("mute.sock")).unwrap();
    // Still the options, which need no node.
    let offered = in_bash(&node, "mainstay -e unix:mute.sock logs --ta");
    assert_eq!(offered, ["--tail"]);
    assert_eq!(in_bash(&node, "mainstay -e unix:mute.sock logs a"), [""]);
    assert_eq!(in_bash(&node, "mainstay -e unix:nowhere.sock logs a"), [""]);
    assert_eq!(
        in_bash(&node, "mainstay --client-config nowhere.yaml logs a"),
        [""]
    );
    drop(mute);
}

#[test]
fn every_shell_has_a_script() {
    let home = tempfile::tempdir().unwrap();
    for name in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = mainstay_testkit::Cli::new(home.path())
            .run(["completion", name])
            .ok();
        assert!(script.contains("MAINSTAY_COMPLETE"), "{name}: {script}");
        assert!(!script.contains(&binary().display().to_string()), "{name}");
    }
}
