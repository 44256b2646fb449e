//! Many nodes, one after another.

use mainstay_testkit::{TestFleet, require};

use super::serving_pid;

#[test]
fn nodes_reboot_one_after_another_also_the_one_that_forwards() {
    require!(Root);
    let fleet = TestFleet::start(3);
    let cli = || fleet.nodes[0].cli();
    let said = cli()
        .run(["reboot", "-n", &fleet.list(), "-o", "json"])
        .json();
    let rows = said.as_array().unwrap();
    assert_eq!(rows.len(), 3);
    for (row, node) in rows.iter().zip(&fleet.nodes) {
        assert_eq!(row["result"], "done", "{said}");
        assert_eq!(serving_pid(&node.state()), node.pid().to_string());
    }
    // One at a time: each has ended before the next has begun.
    let time = |node: usize, wanted: &str| {
        let name = &fleet.names()[node];
        let args = ["events", "--tail", "-1", "-n", name, "-o", "json"];
        let events = cli().run(args).ok();
        let of = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let mut events = events.lines().map(of).filter(|event| {
            event["type"] == "machine.SequenceEvent" && event["data"]["action"] == wanted
        });
        events.next_back().unwrap()["time"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    for node in 0..2 {
        assert!(time(node, "STOP") < time(node + 1, "START"), "node {node}");
    }
}

#[test]
fn the_first_failure_leaves_the_other_nodes_alone() {
    require!(Root);
    let mut fleet = TestFleet::start(3);
    fleet.nodes[1].kill();
    let list = fleet.list();
    let output = fleet.nodes[0]
        .cli()
        .run(["reboot", "-n", &list, "-o", "json"]);
    assert_eq!(output.code, 8, "{}", output.stderr);
    let rows: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    let results: Vec<_> = (rows.as_array().unwrap().iter())
        .map(|row| row["result"].as_str().unwrap())
        .collect();
    assert_eq!(results, ["done", "failed", "untouched"]);
    assert!(
        output.stderr.contains(&fleet.names()[1]),
        "{}",
        output.stderr
    );
}
