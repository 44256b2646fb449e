//! `Cgroups` and `mainstay cgroups`, with a real cell.

use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_api::mainstay::{Cgroup, Cgroups, CgroupsRequest};
use mainstay_api::runtime::{Cell, CellLimits};
use mainstay_identity::Role;
use mainstay_testkit::{CellClient, Sweeper, TestFleet, TestNode, require, soon, to_nodes};
use tonic::{Code, Status};

const MEMORY: u64 = 64 << 20;

struct CellNode {
    node: TestNode,
    // Declared last: cells outlive their node.
    sweeper: Sweeper,
}

impl CellNode {
    fn start(name: &str) -> Self {
        let sweeper = Sweeper::start(&format!("e2e-{name}"));
        let config = format!("[cells]\ncgroup = {:?}\n", sweeper.cgroup());
        let node = TestNode::builder().config(&config).start();
        Self { node, sweeper }
    }

    fn root(&self) -> String {
        format!("/{}", self.sweeper.cgroup())
    }

    /// Runs a program in the cell `web`, with limits.
    async fn run(&self, command: &str) -> i32 {
        let mut client = CellClient::new(&self.node.connect_locally().await);
        let cell = Cell {
            name: "web".to_owned(),
            limits: Some(CellLimits {
                memory_max: MEMORY,
                pids_max: 33,
                ..CellLimits::default()
            }),
            ..Cell::default()
        };
        client.allocate_as(cell).await.unwrap();
        client.start("web", "server", command).await.unwrap()
    }
}

async fn cgroups(node: &TestNode, path: &str, depth: u32) -> Result<Cgroups, Status> {
    let mut client = NodeServiceClient::new(node.connect_locally().await);
    let request = CgroupsRequest {
        path: path.to_owned(),
        depth,
    };
    let answer = soon("the cgroups", client.cgroups(request)).await?;
    let mut messages = answer.into_inner().messages;
    assert_eq!(messages.len(), 1);
    Ok(messages.remove(0))
}

fn named<'a>(found: &'a Cgroups, path: &str) -> &'a Cgroup {
    let cgroup = found.cgroups.iter().find(|cgroup| cgroup.path == path);
    cgroup.unwrap_or_else(|| panic!("{path} is not in {:?}", paths(found)))
}

fn paths(found: &Cgroups) -> Vec<&str> {
    found.cgroups.iter().map(|one| one.path.as_str()).collect()
}

#[tokio::test]
async fn a_cell_is_in_the_tree_with_its_usage_and_limits() {
    require!(Root);
    let node = CellNode::start("cgroups");
    node.run("sleep 1000").await;
    let found = cgroups(&node.node, &node.root(), 0).await.unwrap();
    assert!(["v1", "v2", "hybrid"].contains(&found.mode.as_str()));
    assert!(!found.truncated);
    assert_eq!(
        (found.cgroups[0].path.as_str(), found.cgroups[0].depth),
        (node.root().as_str(), 0)
    );
    let cell = named(&found, &format!("{}/web", node.root()));
    assert_eq!(cell.depth, 1);
    assert_eq!(cell.memory.unwrap().limit_bytes, Some(MEMORY));
    assert!(cell.memory.unwrap().current_bytes > 0, "{cell:?}");
    let pids = cell.pids.unwrap();
    assert_eq!(pids.limit, Some(33));
    assert!(pids.current >= 1, "{cell:?}");
    assert!(cell.cpu.unwrap().usage_nanos > 0, "{cell:?}");
    let below = found
        .cgroups
        .iter()
        .filter(|one| one.path.contains("/web/"));
    let processes: u32 = below.map(|one| one.processes).sum();
    assert!(processes >= 1, "{found:?}");
    // Parents come first, and what the kernel writes is what is shown.
    assert!(
        found
            .cgroups
            .windows(2)
            .all(|pair| pair[1].depth <= pair[0].depth + 1)
    );
    if found.mode != "v1" && std::path::Path::new("/proc/pressure/cpu").exists() {
        assert!(cell.cpu_pressure.is_some(), "{cell:?}");
        let pressure = cell.memory_pressure.unwrap();
        assert!((0.0..=100.0).contains(&pressure.some_avg10));
    }
    let shallow = cgroups(&node.node, &node.root(), 1).await.unwrap();
    assert!(shallow.cgroups.iter().all(|one| one.depth <= 1));
}

#[tokio::test]
async fn cpu_time_of_a_busy_cell_grows() {
    require!(Root);
    let node = CellNode::start("cgroups-busy");
    node.run("sh -c 'while :; do :; done'").await;
    let usage = async || {
        let found = cgroups(&node.node, &node.root(), 0).await.unwrap();
        named(&found, &format!("{}/web", node.root()))
            .cpu
            .unwrap()
            .usage_nanos
    };
    let first = usage().await;
    soon("the CPU time to grow", async {
        while usage().await <= first {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn the_root_is_the_default_and_has_the_whole_machine() {
    let node = TestNode::start();
    let found = cgroups(&node, "", 1).await.unwrap();
    assert_eq!(found.cgroups[0].path, "/");
    assert!(found.cgroups[0].cpu.unwrap().usage_nanos > 0);
}

#[tokio::test]
async fn bad_paths_are_refused() {
    let node = TestNode::start();
    for (path, code) in [
        ("relative", Code::InvalidArgument),
        ("/../../etc", Code::InvalidArgument),
        ("/a/../b", Code::InvalidArgument),
        ("/a\0b", Code::InvalidArgument),
        (&format!("/{}", "x".repeat(1 << 20)), Code::InvalidArgument),
        ("/no-such-cgroup", Code::NotFound),
        (&format!("/{}", "x/".repeat(2000)), Code::NotFound),
        // A file of the hierarchy is no cgroup.
        ("/cgroup.procs", Code::NotFound),
    ] {
        let status = cgroups(&node, path, 0).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().len() < 5000, "{status}");
    }
    cgroups(&node, "/", u32::MAX).await.unwrap();
}

#[tokio::test]
async fn every_node_answers_and_a_reader_may_ask() {
    let fleet = TestFleet::start(2);
    let reader = fleet.nodes[0].credentials("reader", &[Role::Reader]);
    let mut client = NodeServiceClient::new(fleet.nodes[0].connect_as(&reader).await);
    let request = CgroupsRequest {
        path: "/".to_owned(),
        depth: 1,
    };
    let reply = client.cgroups(to_nodes(request, fleet.names())).await;
    let messages = reply.unwrap().into_inner().messages;
    assert_eq!(messages.len(), 2);
    assert!(messages.iter().all(|message| message.metadata.is_some()));
    let status = client.configuration(()).await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn the_command_shows_a_tree() {
    require!(Root);
    let node = CellNode::start("cgroups-cli");
    node.run("sleep 1000").await;
    let root = node.root();
    for sort in ["name", "cpu", "memory", "pids", "io"] {
        let shown = node.node.cli().run(["cgroups", &root, "--sort", sort]).ok();
        // The shim has a cgroup of the same name, without a limit.
        let mut lines = shown.lines();
        assert!(
            lines.any(|line| line.contains(" web ") && line.contains("64 MiB")),
            "{shown}"
        );
        assert!(shown.lines().nth(1).unwrap().contains(&root), "{shown}");
    }
    let json = node
        .node
        .cli()
        .run(["cgroups", &root, "-d", "1", "-o", "json"])
        .json();
    assert_eq!(json[0]["cgroups"][0]["path"], root.as_str());
    let yaml = node.node.cli().run(["cgroups", &root, "-o", "yaml"]).ok();
    assert!(yaml.contains("mode:"), "{yaml}");
    let said = node
        .node
        .cli()
        .run(["cgroups", "/no-such-cgroup"])
        .failed(6);
    assert!(said.contains("/no-such-cgroup"), "{said}");
    node.node.cli().run(["cgroups", "nowhere"]).failed(2);
    node.node.cli().run(["cgroups", "-d", "0"]).failed(2);
    node.node
        .cli()
        .run(["cgroups", "--sort", "colour"])
        .failed(2);
}

#[tokio::test]
async fn the_configuration_in_force_is_returned_without_restart_keys_applied() {
    let text = "names = ['first']\n[time]\nserver = 'ntp.example.org'\n";
    let node = TestNode::builder().config(text).start();
    let mut client = NodeServiceClient::new(node.connect().await);
    let read = async |client: &mut NodeServiceClient<_>| {
        let answer = soon("the configuration", client.configuration(())).await;
        answer.unwrap().into_inner().messages.remove(0)
    };
    let first = read(&mut client).await;
    assert_eq!(first.file, node.config_file().display().to_string());
    assert!(first.toml.contains("ntp.example.org"), "{}", first.toml);
    assert!(first.toml.contains("first"), "{}", first.toml);
    assert!(first.pending_restart.is_empty());

    let changed = "names = ['second']\n[cells]\nusers = 70000\n";
    std::fs::write(node.config_file(), changed).unwrap();
    let reloaded = crate::daemon::wait_for_event(&node, "configuration reloaded").await;
    node.signal(rustix::process::Signal::HUP);
    reloaded.await.unwrap();
    let second = read(&mut client).await;
    assert!(second.toml.contains("second"), "{}", second.toml);
    assert_eq!(second.pending_restart, ["cells.users"]);
}
