//! `mainstay cell` and `mainstay run`: a program on the node as if it ran here.

use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read};
use std::ops::Deref;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, ChildStdout};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use mainstay_testkit::{TestFleet, TestNode, WAIT_TIMEOUT, wait_for_exit};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A node whose cells are freed before it goes, whatever happens: they would outlive it.
struct NodeOfCells(TestNode);

impl NodeOfCells {
    fn start() -> Self {
        Self(TestNode::start())
    }

    /// The names of all cells that are nested in no other.
    fn cells(&self) -> Vec<String> {
        cells_of(&self.0)
    }
}

impl Deref for NodeOfCells {
    type Target = TestNode;

    fn deref(&self) -> &TestNode {
        &self.0
    }
}

impl Drop for NodeOfCells {
    fn drop(&mut self) {
        free_all(&self.0);
    }
}

fn cells_of(node: &TestNode) -> Vec<String> {
    let list = node.cli().run(["cell", "list", "-o", "json"]).json();
    let cells = list[0]["cells"].as_array().unwrap();
    let name = |cell: &Value| cell["cell"]["name"].as_str().unwrap().to_owned();
    cells.iter().map(name).collect()
}

fn free_all(node: &TestNode) {
    for cell in cells_of(node) {
        node.cli().run(["cell", "free", &cell]);
    }
}

/// A run that goes on, with its output a line at a time.
struct Running {
    child: Child,
    lines: mpsc::Receiver<String>,
}

impl Running {
    fn start(node: &TestNode, script: &str) -> Self {
        Self::start_with(node, &[], script)
    }

    fn start_with(node: &TestNode, options: &[&str], script: &str) -> Self {
        let mut args = vec!["run"];
        args.extend(options);
        args.extend(["--", "sh", "-c", script]);
        let mut child = node.cli().spawn(args);
        let stdout: ChildStdout = child.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        Self { child, lines }
    }

    #[track_caller]
    fn wait_for(&self, line: &str) {
        while self.lines.recv_timeout(WAIT_TIMEOUT).expect(line) != line {}
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_raw(i32::try_from(self.child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
    }

    /// Its exit code, and what it said beside its output.
    fn ended(mut self) -> (Option<i32>, String) {
        let status = wait_for_exit(&mut self.child);
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        (status.code(), said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn run_passes_output_and_exit_code_through() {
    let node = NodeOfCells::start();
    let ran = node
        .cli()
        .run(["run", "--", "sh", "-c", "echo hi; echo oops >&2; exit 7"]);
    assert_eq!(
        (ran.stdout.as_str(), ran.stderr.as_str(), ran.code),
        ("hi\n", "oops\n", 7)
    );
    node.cli().run(["run", "--", "true"]).ok();
    assert!(node.cells().is_empty(), "{:?}", node.cells());
}

#[test]
fn words_reach_the_program_as_they_were_written() {
    let node = NodeOfCells::start();
    let script = "for word; do echo \"[$word]\"; done";
    let words = [
        "a b", "it's", "\"", "$HOME", "`id`", "\\", "*", "", "-n", "é",
    ];
    let mut args = vec!["run", "--", "sh", "-c", script, "sh"];
    args.extend(words);
    let expected: String = words.iter().map(|word| format!("[{word}]\n")).collect();
    assert_eq!(node.cli().run(args).ok(), expected);
}

#[test]
fn much_output_comes_whole_and_in_order() {
    let node = NodeOfCells::start();
    let shown = node.cli().run(["run", "--", "seq", "100000"]).ok();
    let expected: String = (1..=100_000).map(|line| format!("{line}\n")).collect();
    assert!(shown == expected, "{} bytes", shown.len());
}

#[test]
fn a_program_that_cannot_be_executed_exits_like_in_a_shell() {
    let node = NodeOfCells::start();
    let said = node.cli().run(["run", "--", "no-such-program"]).failed(127);
    assert!(said.contains("no-such-program"), "{said}");
    let said = node.cli().run(["run", "--", "/etc/passwd"]).failed(126);
    assert!(said.contains("/etc/passwd"), "{said}");
    let garbage = node.scratch().join("garbage");
    std::fs::write(&garbage, [0x7f, b'E', b'L', b'F', 0, 1, 2, 3]).unwrap();
    std::fs::set_permissions(&garbage, Permissions::from_mode(0o755)).unwrap();
    let garbage = garbage.to_str().unwrap();
    let said = node.cli().run(["run", "--", garbage]).failed(126);
    assert!(said.contains("cannot execute"), "{said}");
    assert!(node.cells().is_empty(), "{:?}", node.cells());
}

#[test]
fn death_by_signal_exits_like_in_a_shell() {
    let node = NodeOfCells::start();
    let ran = node.cli().run(["run", "--", "sh", "-c", "kill -9 $$"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (137, ""));
}

#[test]
fn an_oom_kill_is_reported() {
    let node = NodeOfCells::start();
    let ran = node
        .cli()
        .run(["run", "--memory", "16M", "--", "tail", "/dev/zero"]);
    let said = ran.failed(137);
    assert!(said.contains("reached its memory limit"), "{said}");
    assert!(node.cells().is_empty(), "{:?}", node.cells());
}

#[test]
fn signals_go_to_the_program_and_its_code_comes_back() {
    let node = NodeOfCells::start();
    for (signal, name, code) in [
        (Signal::INT, "INT", 3),
        (Signal::TERM, "TERM", 4),
        (Signal::HUP, "HUP", 5),
    ] {
        let script =
            format!("trap 'echo bye; exit {code}' {name}; echo ready; while :; do sleep 0.1; done");
        let running = Running::start(&node, &script);
        running.wait_for("ready");
        running.signal(signal);
        running.wait_for("bye");
        let (ended_with, said) = running.ended();
        assert_eq!(ended_with, Some(code), "{name}: {said}");
        assert!(!said.contains("warning:"), "{name}: {said}");
        assert!(node.cells().is_empty(), "{name}: {:?}", node.cells());
    }
}

#[test]
fn a_second_interrupt_kills_a_program_that_ignored_the_first() {
    /// The default grace of the node.
    const GRACE: Duration = Duration::from_secs(10);
    let node = NodeOfCells::start();
    let script = "trap 'echo still' INT; echo ready; while :; do sleep 0.1; done";
    let running = Running::start(&node, script);
    running.wait_for("ready");
    let began = Instant::now();
    running.signal(Signal::INT);
    running.wait_for("still");
    running.signal(Signal::INT);
    assert_eq!(running.ended().0, Some(137));
    assert!(began.elapsed() < GRACE, "it was not killed at once");
    assert!(node.cells().is_empty(), "{:?}", node.cells());
}

#[test]
fn a_reader_that_goes_away_ends_the_program_and_its_cell() {
    let node = NodeOfCells::start();
    let mut child = node.cli().spawn(["run", "--", "yes"]);
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert_eq!(line, "y\n");
    drop(stdout);
    wait_for_exit(&mut child);
    assert!(node.cells().is_empty(), "{:?}", node.cells());
}

#[test]
fn a_lost_node_is_reported_with_the_cell_left_on_it() {
    let mut node = TestNode::start();
    let options = ["--reconnect", "0s"];
    let running = Running::start_with(&node, &options, "echo ready; exec sleep 60");
    running.wait_for("ready");
    node.kill();
    let (code, said) = running.ended();
    let node = NodeOfCells(node.restart());
    assert_eq!(code, Some(3), "{said}");
    let left = node.cells();
    assert_eq!(left.len(), 1, "it goes on without the daemon: {left:?}");
    let remedy = format!("mainstay cell free {}", left[0]);
    assert!(said.contains(&remedy), "{said}");
    let logs = format!(
        "may still run in cell {:?}: see mainstay cell list",
        left[0]
    );
    assert!(said.contains(&logs), "{said}");
    assert!(
        said.contains(&format!("mainstay cell logs {} sh", left[0])),
        "{said}"
    );
    assert!(!said.contains("reconnecting"), "{said}");
}

#[test]
fn an_unread_pipe_does_not_block_the_interrupt() {
    let node = NodeOfCells::start();
    let mut child = node.cli().spawn(["run", "--", "yes"]);
    // It goes on writing, and nobody goes on reading.
    let mut stdout = child.stdout.take().unwrap();
    stdout.read_exact(&mut [0]).unwrap();
    let running = Running {
        child,
        lines: mpsc::channel().1,
    };
    running.signal(Signal::INT);
    // The program has been stopped, and its stop been answered.
    node.wait_for_log("/runtime.CellService/Stop");
    running.signal(Signal::INT);
    assert_eq!(running.ended().0, Some(130));
    assert!(node.cells().is_empty(), "{:?}", node.cells());
}

#[test]
fn run_in_an_existing_cell_keeps_it() {
    let node = NodeOfCells::start();
    node.cli().run(["cell", "allocate", "web"]).ok();
    let inside = [
        "run",
        "--cell",
        "web",
        "--",
        "cat",
        "/proc/sys/kernel/hostname",
    ];
    for _ in 0..2 {
        assert_eq!(node.cli().run(inside).ok(), "web\n");
    }
    assert_eq!(node.cells(), ["web"]);
    let said = node
        .cli()
        .run(["run", "--cell", "web", "--memory", "1M", "--", "true"])
        .failed(2);
    assert!(said.contains("cell \"web\" exists"), "{said}");

    let new = [
        "run",
        "--cell",
        "web/new",
        "--",
        "cat",
        "/proc/sys/kernel/hostname",
    ];
    assert_eq!(node.cli().run(new).ok(), "new\n");
    let said = node
        .cli()
        .run(["run", "--cell", "no/parent", "--", "true"])
        .failed(6);
    assert!(said.contains("no"), "{said}");
}

#[test]
fn the_same_program_twice_at_once_in_one_cell_needs_another_name() {
    let node = NodeOfCells::start();
    node.cli().run(["cell", "allocate", "web"]).ok();
    node.cli()
        .run(["cell", "start", "web", "sleep", "--", "sleep", "1000"])
        .ok();
    let said = node
        .cli()
        .run(["run", "--cell", "web", "--", "sleep", "0"])
        .failed(1);
    assert!(said.contains("--name"), "{said}");
    let list = node.cli().run(["cell", "list", "web"]).ok();
    assert!(list.contains("running"), "the other one goes on: {list}");
    node.cli()
        .run(["run", "--cell", "web", "--name", "nap", "--", "sleep", "0"])
        .ok();
}

#[test]
fn a_cell_lives_from_allocation_to_freeing() {
    let node = NodeOfCells::start();
    let cli = |args: &[&str]| node.cli().run(args);
    let said = cli(&["cell", "allocate", "web", "--memory", "64M", "--pids", "50"]).ok();
    assert!(said.contains("cell \"web\" allocated"), "{said}");
    cli(&["cell", "allocate", "web"]).failed(1);
    cli(&["cell", "allocate", "-o", "json", "web/inner"]).json();
    let said = cli(&["cell", "allocate", "no_label"]).failed(2);
    assert!(said.contains("no_label"), "{said}");

    let script = "echo $MODE in $PWD; echo ready; exec sleep 1000";
    let started = cli(&[
        "cell",
        "start",
        "web",
        "server",
        "--env",
        "MODE=fast",
        "--workdir",
        "/tmp",
        "--uid",
        "1234",
        "-o",
        "json",
        "--",
        "sh",
        "-c",
        script,
    ])
    .json();
    assert_eq!(started[0]["uid"], 1234);
    let pid = started[0]["pid"].as_i64().unwrap();
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    assert!(status.contains("1234"), "{status}");

    let mut follower = node.cli().spawn(["cell", "logs", "web", "server", "-f"]);
    let mut lines = BufReader::new(follower.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    let second = lines.next().unwrap().unwrap();
    let _ = follower.kill();
    let _ = follower.wait();
    assert_eq!((first.as_str(), second.as_str()), ("fast in /tmp", "ready"));
    let last = cli(&["cell", "logs", "web", "server", "--tail", "1"]).ok();
    assert_eq!(last, "ready\n");
    let said = cli(&["cell", "logs", "web", "nobody"]).failed(6);
    assert!(said.contains("\"nobody\""), "{said}");
    cli(&["cell", "logs", "nowhere", "server"]).failed(6);

    let table = cli(&["cell", "list"]).ok();
    let row = |table: &str, name: &str| -> Vec<String> {
        let line = table.lines().find(|line| line.contains(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect()
    };
    let server = row(&table, " server ");
    assert_eq!(server[..4], ["web", "server", "running", &pid.to_string()]);
    assert_eq!(row(&table, "web/inner ")[1], "-");
    let stats = cli(&["cell", "stats", "web"]).ok();
    assert_eq!(row(&stats, " server ")[..2], ["web", "server"]);
    let idle = cli(&["cell", "stats", "web/inner"]).ok();
    assert_eq!(idle.lines().count(), 1, "{idle}");
    let missing = cli(&["cell", "stats", "we"]).failed(6);
    assert!(missing.contains("cell we does not exist"), "{missing}");

    let stop = ["cell", "stop", "web", "server", "--signal", "KILL"];
    assert!(cli(&stop).ok().contains("stopped"));
    let table = cli(&["cell", "list", "web"]).ok();
    let server = row(&table, " server ");
    assert_eq!(server[2..5], ["exited", "-", "SIGKILL"]);
    cli(&["cell", "stop", "web", "nobody"]).failed(6);
    cli(&["cell", "stop", "web"]).ok();

    // One that is not there does not keep the others.
    let free = cli(&["cell", "free", "nowhere", "web"]);
    assert_eq!(free.code, 6, "{}", free.stderr);
    assert!(
        free.stdout.contains("cell \"web\" freed"),
        "{}",
        free.stdout
    );
    assert!(node.cells().is_empty());
    cli(&["cell", "list", "web"]).failed(6);
}

#[test]
fn a_reader_sees_cells_and_may_not_run_anything() {
    let node = NodeOfCells::start();
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
    let config = ["--client-config", "reader.yaml"];
    let as_reader = |args: &[&str]| node.cli().run(config.iter().chain(args));
    node.cli().run(["cell", "allocate", "web"]).ok();
    let secret = [
        "cell",
        "start",
        "web",
        "s",
        "--env",
        "TOKEN=hush",
        "--",
        "true",
    ];
    node.cli().run(secret).ok();
    let seen = as_reader(&["cell", "list", "-o", "json"]).ok();
    assert!(seen.contains("TOKEN") && !seen.contains("hush"), "{seen}");
    let said = as_reader(&["run", "--", "true"]).failed(5);
    assert!(said.contains("not authorized"), "{said}");
}

#[test]
fn another_node_runs_it_when_asked_to() {
    let fleet = TestFleet::start(2);
    let there = fleet.names()[1].clone();
    let cli = || fleet.nodes[0].cli();
    let ran = cli().run(["-n", &there, "run", "--", "sh", "-c", "echo hi; exit 7"]);
    assert_eq!((ran.stdout.as_str(), ran.code), ("hi\n", 7));

    cli().run(["-n", &there, "cell", "allocate", "web"]).ok();
    let both = fleet.list();
    let shown = cli()
        .run(["-n", &both, "cell", "list", "-o", "json"])
        .json();
    let freed = cli().run(["-n", &there, "cell", "free", "web"]);
    assert_eq!(shown[0]["cells"].as_array().unwrap().len(), 0);
    assert_eq!(shown[1]["cells"][0]["cell"]["name"], "web");
    assert_eq!(shown[1]["node"], there);
    freed.ok();
    let said = cli().run(["-n", &both, "run", "--", "true"]).failed(2);
    assert!(said.contains("one node"), "{said}");
}

#[test]
fn an_executable_is_restarted_like_a_container() {
    let node = NodeOfCells::start();
    node.cli().run(["cell", "allocate", "web"]).ok();
    let start = ["cell", "start", "web", "server", "--", "sleep", "1000"];
    node.cli().run(start).ok();
    let status = || {
        let list = node.cli().run(["cell", "list", "-o", "json"]).json();
        let server = &list[0]["cells"][0]["executables"][0];
        assert_eq!(server["state"], "EXECUTABLE_STATE_RUNNING", "{list}");
        (server["pid"].clone(), server["runs"].clone())
    };
    let before = status();
    let said = node
        .cli()
        .run(["restart", "--namespace", "mainstay", "web/server"])
        .ok();
    assert!(said.contains("\"web/server\" restarted"), "{said}");
    let after = status();
    assert_ne!(before.0, after.0);
    assert_ne!(before.1, after.1);
    let missing = ["restart", "--namespace", "mainstay", "web/other"];
    node.cli().run(missing).failed(6);
}
