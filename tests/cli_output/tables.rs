//! Tables and messages of successful commands.

use std::os::unix::fs::PermissionsExt;

use mainstay_testkit::TestNode;

use super::{filters, header_and_rows_with, hostname, without_numbers};

#[test]
fn tables_of_the_machine_match_their_snapshots() {
    let node = TestNode::start();
    let _filters = filters(&node);
    let table = |args: &[&str]| {
        let text = node.cli().run(args).ok();
        assert!(!text.contains('\x1b'), "colours without a terminal");
        text
    };
    insta::assert_snapshot!("version", table(&["version"]));
    insta::assert_snapshot!("health", table(&["health"]));
    insta::assert_snapshot!("free", table(&["free"]));
    insta::assert_snapshot!("events", table(&["events", "--tail", "1"]));

    let root = header_and_rows_with(&table(&["df"]), "% ");
    let header = root.lines().next().unwrap_or_default();
    insta::assert_snapshot!("df-header", header);
    assert!(
        root.lines().count() > 1,
        "no file system has a usage: {root}"
    );

    let state = node.state().display().to_string();
    let processes = table(&["ps", "--filter", &state]);
    let pid = format!("{} ", node.pid());
    let own = processes.lines().enumerate();
    let own = own.filter(|(index, row)| *index == 0 || row.starts_with(&pid));
    let own: String = own.map(|(_, row)| format!("{row}\n")).collect();
    insta::assert_snapshot!("ps-header", own.lines().next().unwrap_or_default());
    assert_eq!(own.lines().count(), 2, "{processes}");

    let sockets = table(&["netstat", "-tlp"]);
    // The endpoint is also the name of the node, at the start of every row.
    let own = header_and_rows_with(&sockets, &format!("  {}  ", node.listen()));
    let own = own.replace(&node.pid().to_string(), "[PID]");
    insta::assert_snapshot!("netstat", own);
}

#[test]
fn the_node_is_a_column_only_where_nodes_are_named() {
    let node = TestNode::start();
    let name = node.listen().to_string();
    for command in ["df", "disks", "interfaces", "routes", "time", "cgroups"] {
        let depth: &[&str] = match command {
            "cgroups" => &["-d", "1"],
            _ => &[],
        };
        let alone = [&[command], depth].concat();
        let named = [&[command, "-n", &name], depth].concat();
        let header = |args: &[&str]| node.cli().run(args).ok().lines().next().map(str::to_owned);
        let header_alone = header(&alone).unwrap();
        assert!(!header_alone.contains("NODE"), "{command}: {header_alone}");
        let header_named = header(&named).unwrap();
        assert!(
            header_named.starts_with("NODE "),
            "{command}: {header_named}"
        );
    }
}

#[test]
fn tables_of_files_match_their_snapshots() {
    let node = TestNode::start();
    let _filters = filters(&node);
    let dir = node.scratch().join("tree");
    std::fs::create_dir_all(dir.join("sub")).unwrap();
    std::fs::write(dir.join("sub/file"), "x".repeat(5000)).unwrap();
    std::os::unix::fs::symlink("sub/file", dir.join("link")).unwrap();
    let path = dir.to_str().unwrap();
    insta::assert_snapshot!("ls", node.cli().run(["ls", "-R", path]).ok());
    std::fs::set_permissions(dir.join("sub/file"), PermissionsExt::from_mode(0o4750)).unwrap();
    let long = node.cli().run(["ls", "-l", &format!("{path}/sub")]).ok();
    insta::assert_snapshot!("ls-long", header_and_rows_with(&long, "file"));
    insta::assert_snapshot!("du", node.cli().run(["du", "-a", path]).ok());
}

#[test]
fn tables_of_the_client_configuration_match_their_snapshots() {
    let node = TestNode::start();
    let _filters = filters(&node);
    let file = node.state().join("client.yaml").display().to_string();
    let own = ["--client-config", "own.yaml"];
    let run = |args: &[&str]| node.cli().run(own.iter().chain(args));
    let merged = run(&["config", "merge", &file]);
    insta::assert_snapshot!("config-merge", merged.stderr);
    let again = run(&["config", "merge", &file]);
    insta::assert_snapshot!("config-merge-again", again.stderr);
    let socket = node.socket().display().to_string();
    let added = run(&["config", "add", "local", "--socket", &socket]);
    insta::assert_snapshot!("config-add", added.stderr);
    insta::assert_snapshot!("config-use", run(&["config", "use", "local"]).stderr);
    let names = |text: String| text.replace(&hostname(), "HOSTNAME");
    insta::assert_snapshot!("config-list", names(run(&["config", "list"]).ok()));
    insta::assert_snapshot!("config-info", names(run(&["config", "info"]).ok()));
    insta::assert_snapshot!("config-remove", run(&["config", "remove", "local"]).stderr);

    let pki = node.state().join("pki").display().to_string();
    let shown = node.cli().run(["pki", "show", &pki]).ok();
    insta::assert_snapshot!("pki-show-header", shown.lines().next().unwrap_or_default());
    let issued = node.cli().run([
        "pki",
        "client",
        "--name",
        "r",
        "--role",
        "os:reader",
        "--out",
        "r.yaml",
    ]);
    insta::assert_snapshot!("pki-client", issued.stderr);
}

#[test]
fn tables_of_cells_match_their_snapshots() {
    let node = TestNode::start();
    let _filters = filters(&node);
    let run = |args: &[&str]| node.cli().run(args);
    let shown = |args: &[&str]| run(args).ok();
    let allocated = shown(&["cell", "allocate", "web", "--memory", "64M"]);
    let nested = shown(&["cell", "allocate", "web/inner"]);
    let start = ["cell", "start", "web", "server", "--", "sleep", "1000"];
    let started = run(&start);
    let tables = started.ok() + &allocated + &nested;
    let list = without_numbers(&shown(&["cell", "list"]));
    let containers = without_numbers(&shown(&["containers", "--namespace", "mainstay"]));
    let stats = shown(&["cell", "stats"]);
    let container_stats = shown(&["stats", "--namespace", "mainstay"]);
    let stopped = shown(&["cell", "stop", "web", "server", "--signal", "KILL"]);
    let exited = shown(&["cell", "list"]);
    let freed = shown(&["cell", "free", "web"]);
    insta::assert_snapshot!("cell-messages", tables + &stopped + &freed);
    insta::assert_snapshot!("cell-list", list);
    insta::assert_snapshot!("cell-list-exited", exited);
    insta::assert_snapshot!("cell-stats", stats);
    insta::assert_snapshot!("containers", containers);
    insta::assert_snapshot!("stats", container_stats);
}
