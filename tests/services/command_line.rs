//! `mainstay services`, `mainstay service`, and `mainstay health --wait`.

use mainstay_testkit::{TestFleet, TestNode, require};

use super::service_node::{ServiceNode, is_healthy};

#[tokio::test]
async fn services_are_listed_and_operated_by_name() {
    require!(Root);
    let node = ServiceNode::start(
        "services-cli",
        "[services.web]\ncommand = \"sh -c 'echo hello; exec sleep 78001'\"\n\
         health = { exec = 'true', delay = '1ms' }\n\
         [services.bad]\ncommand = '/no/such/program'\nrestart = 'never'\n",
    );
    node.until("web", is_healthy).await;
    node.until_state("bad", "Failed").await;
    let run = |args: &[&str]| node.node.cli().run(args);
    let table = run(&["services"]).ok();
    let row = |id: &str| {
        let row = table.lines().find(|line| line.starts_with(id)).unwrap();
        row.split_whitespace()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert!(table.starts_with("ID "), "{table}");
    assert_eq!(row("web")[1..3], ["Running", "OK"]);
    assert_eq!(row("bad")[1..3], ["Failed", "-"]);
    assert_eq!(row("mainstay")[1..3], ["Running", "OK"]);
    let listed = run(&["services", "-o", "json"]).json();
    assert_eq!(listed[0]["services"][0]["id"], "bad");

    let status = run(&["service", "web"]).ok();
    assert!(
        status.starts_with("web Running\nhealth OK since "),
        "{status}"
    );
    assert!(status.contains("health check passed"), "{status}");
    assert_eq!(
        run(&["service", "web", "stop"]).ok(),
        "Service \"web\" stopped\n"
    );
    assert_eq!(
        run(&["service", "web", "start"]).ok(),
        "Service \"web\" started\n"
    );
    assert_eq!(
        run(&["service", "web", "restart"]).ok(),
        "Service \"web\" restarted\n"
    );
    let confirmed = run(&["service", "web", "restart", "-o", "json"]).json();
    assert_eq!(confirmed[0]["resp"], "Service \"web\" restarted");
    assert!(
        run(&["service", "web", "logs", "--tail", "1"])
            .ok()
            .contains("hello")
    );
    let unknown = run(&["service", "none"]).failed(6);
    assert!(unknown.contains("service \"none\" not found"), "{unknown}");
    let unknown = run(&["service", "none", "stop"]).failed(6);
    assert!(unknown.contains("not defined"), "{unknown}");
    let daemon = run(&["service", "mainstay", "stop"]);
    assert_ne!(daemon.code, 0);
    assert!(
        daemon
            .stderr
            .contains("doesn't support stop operation via API")
    );
}

#[tokio::test]
async fn health_waits_until_all_is_up_and_says_what_is_not() {
    require!(Root);
    let node = ServiceNode::start_with("services-wait", |scratch| {
        let pipe = scratch.join("pipe");
        format!(
            "[services.first]\noneshot = true\n\
             command = \"sh -c 'mkfifo {0}; echo ready; read line < {0}'\"\n\
             [services.web]\ncommand = ['sleep', '78011']\nrequires = ['first']\n",
            pipe.display()
        )
    });
    node.until_state("web", "Waiting").await;
    let said = node.node.cli().run(["health", "--wait=50ms"]).failed(1);
    assert!(said.contains("service web"), "{said}");
    assert!(said.contains("is Waiting: waiting for first"), "{said}");
    let waiting = node.node.cli().spawn(["health", "--wait=2m"]);
    node.until_line("first", "ready").await;
    let pipe = node.node.scratch().join("pipe");
    // Blocks until the service has opened it.
    std::fs::write(pipe, "go\n").unwrap();
    let output = tokio::task::spawn_blocking(|| waiting.wait_with_output()).await;
    let output = output.unwrap().unwrap();
    assert!(output.status.success(), "{output:?}");
    assert_eq!(node.service("web").await.state, "Running");
}

#[test]
fn services_of_many_nodes_are_listed_at_once() {
    let fleet = TestFleet::start(2);
    let nodes = fleet.names().join(",");
    let table = fleet.nodes[0].cli().run(["-n", &nodes, "services"]).ok();
    assert!(table.starts_with("NODE"), "{table}");
    assert_eq!(
        table
            .lines()
            .filter(|line| line.contains("mainstay"))
            .count(),
        2
    );
}

#[test]
fn a_node_without_services_is_healthy_at_once() {
    let node = TestNode::start();
    assert!(
        node.cli()
            .run(["health", "--wait"])
            .ok()
            .contains("SERVING")
    );
    let said = node
        .cli()
        .run(["health", "--wait", "machine.MachineService"])
        .failed(2);
    assert!(said.contains("cannot be used with"), "{said}");
}
