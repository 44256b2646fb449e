//! `mainstay top`: on a real terminal, and as a snapshot into a pipe.

use std::io::Read;
use std::process::Command;

use mainstay_identity::ClientConfig;
use mainstay_testkit::{OnTerminal, TestFleet, TestNode, binary, dead_address, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};

use crate::swept_node::SweptNode;

/// The command as root has it, on a terminal that knows colours.
fn top(node: &TestNode, args: &[&str]) -> Command {
    let mut command = Command::new(binary());
    command
        .arg("top")
        .args(args)
        .env_clear()
        .env("HOME", node.scratch())
        .env("MAINSTAY_STATE", node.state())
        .env("TERM", "xterm-256color")
        .env("TZ", "UTC")
        .current_dir(node.scratch());
    command
}

fn hostname() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    name.trim().to_owned()
}

#[test]
fn a_node_is_seen_live_and_keys_work() {
    let node = TestNode::start();
    let mut top = OnTerminal::run(&top(&node, &["--interval", "200ms"]), 100, 30);
    top.wait_for(&hostname());
    top.wait_for(&node.listen().to_string());
    // The node under test is a process of the node under test.
    top.press("/mainstay serve");
    top.wait_for("found");
    top.press("\r");
    let pid = node.pid().to_string();
    top.press("p");
    top.wait_until("the node's own process", |screen| {
        let mut rows = screen.rows(0, 100);
        rows.any(|row| row.split_whitespace().next() == Some(&pid))
    });
    top.press("\x1b");
    top.wait_without("found");
    // Rates come with the second round.
    top.wait_until("a share of the processors", |screen| {
        let rows: Vec<String> = screen.rows(0, 100).collect();
        rows[1].starts_with("cpu") && rows[1].contains('%')
    });
    top.press("\t");
    top.wait_for("no containers and no cells");
    top.press("l");
    top.wait_for("logs");
    // The node's own log tells of this very program.
    top.wait_for("/machine.MachineService/");
    top.press("l");
    top.wait_without("[ ] another");
    top.press("?");
    top.wait_for("any key closes it");
    top.press("x");
    top.wait_without("any key closes it");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn an_open_view_does_not_flood_the_request_log() {
    let node = TestNode::start();
    let mut top = OnTerminal::run(&top(&node, &["--interval", "100ms"]), 100, 30);
    top.wait_for("load");
    // Seconds by the clock in the first row, with about ten rounds of readings each.
    let clock = |text: &str| {
        let row = text.lines().next().unwrap_or_default();
        row.split_whitespace().last().map(str::to_owned)
    };
    for _ in 0..4 {
        let before = clock(&top.text());
        top.wait_until("the next second", |screen| {
            clock(&screen.contents()) != before
        });
    }
    let text = node.cli().run(["logs", "mainstay"]).ok();
    for method in ["LoadAvg", "Memory", "Processes", "SystemStat"] {
        let path = format!("/machine.MachineService/{method} ");
        let lines: Vec<&str> = text.lines().filter(|line| line.contains(&path)).collect();
        // The first, the end of a window, and what the snapshot wrote; again after a lost connection.
        assert!((1..=8).contains(&lines.len()), "{lines:#?}");
    }
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_node_that_goes_away_is_lost_and_comes_back_by_itself() {
    let mut node = TestNode::start();
    let listen = node.listen().to_string();
    let mut top = OnTerminal::run(&top(&node, &["--interval", "200ms"]), 120, 30);
    top.wait_for("processes");
    top.wait_for("load");
    node.kill();
    top.wait_for("lost for");
    top.wait_for("Connection refused");
    assert!(top.text().contains("COMMAND"), "the last readings stay");
    let node = node.into_builder().arg("--listen").arg(&listen).start();
    top.wait_without("lost for");
    top.wait_for("load");
    drop(node);
    top.wait_for("lost for");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn the_terminal_may_change_its_size() {
    let node = TestNode::start();
    let mut top = OnTerminal::run(&top(&node, &[]), 80, 24);
    top.wait_for("q quit");
    for (width, height) in [(160, 50), (10, 3), (1, 1), (80, 24)] {
        top.resize(width, height);
    }
    top.wait_until("a line at the bottom again", |screen| {
        screen
            .rows(0, 80)
            .last()
            .is_some_and(|row| row.contains("q quit"))
    });
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn the_terminal_is_restored_after_every_kind_of_exit() {
    let node = TestNode::start();
    for signal in [Signal::TERM, Signal::HUP, Signal::INT] {
        let mut top = OnTerminal::run(&top(&node, &[]), 80, 24);
        top.wait_for("q quit");
        kill_process(
            Pid::from_raw(top.pid().try_into().unwrap()).unwrap(),
            signal,
        )
        .unwrap();
        assert!(top.ended().success(), "{signal:?}");
    }
    let mut top = OnTerminal::run(&top(&node, &[]), 80, 24);
    top.wait_for("q quit");
    top.press("\x03");
    assert!(top.ended().success(), "Ctrl-C");
}

#[test]
fn it_can_be_suspended_and_brought_back() {
    let node = TestNode::start();
    let plain = top(&node, &[]);
    let mut shell = Command::new("sh");
    shell
        .arg("-mc")
        .arg("\"$0\" top; echo stopped=$?; read line; fg; echo ended=$?")
        .arg(binary())
        .env_clear()
        .envs(
            plain
                .get_envs()
                .filter_map(|(name, value)| Some((name, value?))),
        )
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .current_dir(node.scratch());
    let mut shell = OnTerminal::run(&shell, 80, 24);
    shell.wait_for("q quit");
    shell.press("\x1a");
    // With its number: the shell's own command line stands in the view.
    shell.wait_for("stopped=148");
    shell.wait_until("the ordinary screen", |screen| {
        !screen.alternate_screen() && !screen.hide_cursor()
    });
    shell.press("\n");
    shell.wait_until("the view again", |screen| {
        screen.alternate_screen() && screen.contents().contains("q quit")
    });
    shell.press("q");
    shell.wait_for("ended=0");
    assert!(shell.ended().success());
}

#[test]
fn without_anybody_to_bring_it_back_it_is_not_suspended() {
    let node = TestNode::start();
    let mut top = OnTerminal::run(&top(&node, &[]), 80, 24);
    top.wait_for("q quit");
    top.press("\x1a");
    top.press("?");
    top.wait_for("any key closes it");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn no_color_means_none() {
    let node = TestNode::start();
    for (colours, no_color) in [(true, ""), (false, "1")] {
        let mut command = top(&node, &["--interval", "200ms"]);
        command.env("NO_COLOR", no_color);
        let mut top = OnTerminal::run(&command, 80, 24);
        top.wait_for("q quit");
        assert_eq!(top.has_colours(), colours, "NO_COLOR={no_color:?}");
        top.press("q");
        assert!(top.ended().success());
    }
}

#[test]
fn a_snapshot_goes_into_a_pipe() {
    let node = TestNode::start();
    let text = node
        .cli()
        .run(["top", "--once", "--interval", "200ms"])
        .ok();
    for expected in [
        &*hostname(),
        "MOUNTED ON",
        "NETWORK",
        "COMMAND",
        "mainstay serve",
    ] {
        assert!(text.contains(expected), "{expected} is missing:\n{text}");
    }
    assert!(!text.contains('\x1b'), "{text}");

    let json = node
        .cli()
        .run(["top", "--once", "--interval", "200ms", "-o", "json"])
        .json();
    let entry = &json[0];
    assert_eq!(entry["state"], "live");
    assert_eq!(entry["hostname"], hostname());
    let busy = entry["cpu"]["total"]["busy_percent"].as_f64().unwrap();
    assert!((0.0..=100.0).contains(&busy));
    assert!(entry["memory"]["total_bytes"].as_u64().unwrap() > 0);
    let processes = entry["processes"].as_array().unwrap();
    let own = processes
        .iter()
        .find(|process| process["pid"] == node.pid())
        .unwrap();
    assert!(own["cpu_percent"].as_f64().unwrap() >= 0.0);
    assert_eq!(entry["services"][0]["id"], "mainstay");
    assert_eq!(entry["withheld"], serde_json::json!({}));
}

#[test]
fn bad_usage_and_nodes_that_are_not_there_end_it_at_once() {
    let mut node = TestNode::start();
    let said = node.cli().run(["top"]).failed(2);
    assert!(
        said.contains("--once") && said.contains("mainstay ps -o json"),
        "{said}"
    );
    let said = node.cli().run(["top", "-o", "json"]).failed(2);
    assert!(said.contains("--once"), "{said}");
    for interval in ["0s", "1ms", "2h", "soon", "-1s"] {
        node.cli()
            .run(["top", "--once", "--interval", interval])
            .failed(2);
    }
    let said = node.cli().run(["top", "--once", "-n", "a\nb"]).failed(2);
    assert!(said.contains("is not a node"), "{said}");
    let mut command = top(&node, &[]);
    command.env("TERM", "dumb");
    let mut dumb = OnTerminal::run(&command, 80, 24);
    dumb.wait_for("--once");
    assert_eq!(dumb.ended().code(), Some(2));

    assert!(node.stop().success());
    let said = node.cli().run(["top", "--once"]).failed(3);
    assert!(said.contains("is mainstay serving there?"), "{said}");
    let mut gone = OnTerminal::run(&top(&node, &[]), 80, 24);
    gone.wait_for("is mainstay serving there?");
    assert_eq!(gone.ended().code(), Some(3));
}

#[test]
fn top_without_permission_is_refused_with_the_reason() {
    let node = TestNode::start();
    let path = node.state().join("client.yaml");
    let mut config = ClientConfig::load(&path).unwrap();
    let (cert, key) = node.credentials("nobody", &[]).identity.unwrap();
    let context = config.contexts.values_mut().next().unwrap();
    (context.crt, context.key) = (Some(cert), Some(key));
    config.save(&path).unwrap();
    let said = node.cli().run(["top", "--once"]).failed(5);
    assert!(said.contains("not authorized"), "{said}");
    let mut refused = OnTerminal::run(&top(&node, &[]), 80, 24);
    refused.wait_for("not authorized");
    assert_eq!(refused.ended().code(), Some(5));
}

#[test]
fn a_reader_of_a_snapshot_may_go_away() {
    let node = TestNode::start();
    let mut child = node.cli().spawn(["top", "--once", "--interval", "200ms"]);
    let mut stdout = child.stdout.take().unwrap();
    let mut first = [0; 1];
    stdout.read_exact(&mut first).unwrap();
    drop(stdout);
    assert!(wait_for_exit(&mut child).success());
}

#[test]
fn many_nodes_are_a_line_each_and_one_that_goes_harms_no_other() {
    let mut fleet = TestFleet::start(3);
    let names = fleet.names();
    let command = top(
        &fleet.nodes[0],
        &["--interval", "200ms", "-n", &fleet.list()],
    );
    let mut top = OnTerminal::run(&command, 130, 24);
    let state = |screen: &vt100::Screen, name: &str, state: &str| {
        let mut rows = screen.rows(0, 130);
        rows.any(|row| row.starts_with(name) && row.contains(state))
    };
    top.wait_until("three nodes that are up, with rates", |screen| {
        names.iter().all(|name| state(screen, name, " up "))
            && names.iter().all(|name| state(screen, name, "%"))
    });
    let mut gone = fleet.nodes.pop().unwrap();
    gone.kill();
    top.wait_until("one that is lost", |screen| {
        screen.contents().contains("1 lost")
            && state(screen, &names[2], "lost for")
            && state(screen, &names[0], " up ")
            && state(screen, &names[1], " up ")
    });
    top.press("\x1b[B\r");
    top.wait_for("node 2 of 3");
    // By its number: a command behind a long path is cut off.
    top.wait_until("a process of the node", |screen| {
        let mut rows = screen
            .rows(0, 130)
            .skip_while(|row| !row.contains("COMMAND"));
        rows.any(|row| {
            let pid = row.split_whitespace().next();
            pid.is_some_and(|pid| pid.parse::<u32>().is_ok())
        })
    });
    assert!(!top.text().contains("lost for"), "{}", top.text());
    top.press("\x1b[C");
    top.wait_for("node 3 of 3");
    top.wait_for("lost for");
    let listen = gone.listen().to_string();
    let gone = gone.into_builder().arg("--listen").arg(listen).start();
    top.wait_without("lost for");
    top.wait_for("load");
    top.press("\x1b");
    top.wait_for("3 nodes");
    top.wait_without("1 lost");
    drop(gone);
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn the_endpoint_of_many_nodes_may_go_and_come_back() {
    let mut fleet = TestFleet::start(2);
    let command = top(
        &fleet.nodes[0],
        &["--interval", "200ms", "-n", &fleet.list()],
    );
    let mut top = OnTerminal::run(&command, 130, 24);
    top.wait_for(" up ");
    let mut first = fleet.nodes.remove(0);
    first.kill();
    top.wait_for("2 lost");
    let listen = first.listen().to_string();
    let _first = first.into_builder().arg("--listen").arg(listen).start();
    top.wait_without("lost");
    top.press("q");
    assert!(top.ended().success());
}

#[test]
fn a_snapshot_of_many_nodes_says_which_did_not_answer() {
    let fleet = TestFleet::to_anywhere(2);
    let dead = dead_address();
    let nodes = format!("{},{dead}", fleet.list());
    let run = |args: &[&str]| {
        let mut all = vec!["top", "--once", "--interval", "200ms", "-n", &nodes];
        all.extend(args);
        fleet.nodes[0].cli().run(all)
    };
    let text = run(&[]);
    assert_eq!(text.code, 8, "{}", text.stderr);
    assert!(text.stderr.contains(&dead.to_string()), "{}", text.stderr);
    for name in fleet.names() {
        let line = text.stdout.lines().find(|line| line.starts_with(&name));
        assert!(
            line.is_some_and(|line| line.ends_with("up")),
            "{}",
            text.stdout
        );
    }
    let json: serde_json::Value = serde_json::from_str(&run(&["-o", "json"]).stdout).unwrap();
    let states: Vec<&str> = json
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["state"].as_str().unwrap())
        .collect();
    assert_eq!(states, ["live", "live", "lost"]);
    for entry in &json.as_array().unwrap()[..2] {
        assert!(entry["processes"][0]["cpu_percent"].is_number(), "{entry}");
    }
    let alone = fleet.nodes[0]
        .cli()
        .run(["top", "--once", "-n", &dead.to_string()]);
    assert_eq!(alone.code, 3, "{}", alone.stderr);
}

#[test]
fn a_wide_terminal_shows_cells_users_and_io_and_no_empty_pane() {
    let node = SweptNode::start("top");
    let mut top = OnTerminal::run(&top(&node, &["--interval", "200ms"]), 160, 50);
    top.wait_for("READ");
    // Nothing stands beside the processes of a node without containers and services.
    top.wait_until("processes over the whole width", |screen| {
        let mut rows = screen.rows(0, 160);
        rows.any(|row| row.starts_with("processes ") && !row.contains("cells"))
    });
    top.wait_for("USER");
    // The daemon's log, which a tall terminal shows.
    top.wait_for("logs  mainstay");
    node.cli().run(["cell", "allocate", "pane"]).ok();
    let start = ["cell", "start", "pane", "sleeper", "--", "sleep", "1000"];
    node.cli().run(start).ok();
    top.wait_for("containers and cells");
    top.wait_for("mainstay/pane/sleeper");
    top.press("q");
    assert!(top.ended().success());
}
