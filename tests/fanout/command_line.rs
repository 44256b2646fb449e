//! Many nodes from the command line: whose each line is, and who failed.

use mainstay_testkit::{TestFleet, TestNetwork, TestNode, WAIT_TIMEOUT, dead_address, require};

#[test]
fn output_lines_carry_their_node_and_failed_nodes_are_named() {
    let mut fleet = TestFleet::to_anywhere(3);
    let names = fleet.names();
    let list = fleet.list();
    let cli = |fleet: &TestFleet| fleet.nodes[0].cli();

    let shown = cli(&fleet).run(["-n", &list, "free"]).ok();
    let mut nodes: Vec<_> = shown
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().next().unwrap())
        .collect();
    nodes.dedup();
    assert_eq!(nodes, names, "in the order asked for: {shown}");
    let logs = cli(&fleet)
        .run(["-n", &list, "logs", "mainstay", "--tail", "1"])
        .ok();
    for name in &names {
        assert!(logs.contains(&format!("{name}: ")), "{logs}");
    }
    let health = cli(&fleet)
        .run(["-n", &list, "health", "-o", "json"])
        .json();
    assert_eq!(health.as_array().unwrap().len(), 3);

    fleet.nodes[2].kill();
    for args in [
        &["ps"][..],
        &["free", "-o", "json"],
        &["df", "-o", "yaml"],
        &["version"],
        &["health"],
        &["dmesg"],
        &["ls", "/"],
        &["logs", "mainstay"],
        &["cat", "/proc/loadavg"],
        &["events"],
    ] {
        let mut all = vec!["-n", &list];
        all.extend(args);
        let output = cli(&fleet).run(all);
        assert_eq!(output.code, 8, "{args:?}: {}", output.stderr);
        for name in &names[..2] {
            assert!(output.stdout.contains(name.as_str()), "{args:?}");
            assert!(!output.stderr.contains(name.as_str()), "{args:?}");
        }
        assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);
        let said = format!("node {}: cannot be reached", names[2]);
        assert!(output.stderr.contains(&said), "{args:?} {}", output.stderr);
        let of_the_dead = |line: &str| line.starts_with(&names[2]);
        assert!(!output.stdout.lines().any(of_the_dead), "{args:?}");
    }

    // All of them, one or many: the exit code says why.
    let output = cli(&fleet).run(["-n", &names[2], "ps"]);
    assert!(output.failed(3).contains("cannot be reached"));
    let both = format!("{},{}", names[2], dead_address());
    let said = cli(&fleet).run(["-n", &both, "ps"]).failed(3);
    assert_eq!(said.lines().count(), 2, "{said}");
    let said = cli(&fleet)
        .run(["-n", &names[1], "logs", "nothing"])
        .failed(6);
    assert!(
        said.contains("log \"nothing\" was not registered") && !said.contains("rpc error"),
        "{said}"
    );
    let said = cli(&fleet).run(["-n", "a b", "ps"]).failed(2);
    assert!(said.contains("does not name a node"), "{said}");
}

#[test]
fn a_node_whose_link_is_cut_is_one_named_error_beside_the_answers_of_the_others() {
    use std::time::{Duration, Instant};
    const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

    require!(Network);
    let network = TestNetwork::of_machines(3);
    let mut config =
        "[fleet]\nconnect_timeout = '2s'\nanswer_timeout = '60s'\n[peers]\n".to_owned();
    for index in 0..3 {
        let address = TestNetwork::address(index);
        config += &format!("n{} = '{address}'\n", index + 1);
    }
    let on_machine = |index: usize| {
        TestNode::builder()
            .on(network.machine(index))
            .arg("--listen")
            .arg(format!("{}:50000", TestNetwork::address(index)))
    };
    let first = on_machine(0).config(&config).start();
    let socket = format!("unix:{}", first.socket().display());
    let _others: Vec<_> = [1, 2]
        .into_iter()
        .map(|index| {
            let builder = on_machine(index);
            let pki = builder.state().join("pki").display().to_string();
            let (name, address) = (format!("n{}", index + 1), TestNetwork::address(index));
            let args = [
                "pki", "node", "--name", &name, "--san", &address, "--out", &pki,
            ];
            first.cli().run(args).ok();
            builder.start()
        })
        .collect();
    let ps = || {
        let args = ["-n", "n1,n2,n3", "ps", "--timeout", "60s", "-e", &socket];
        let began = Instant::now();
        let output = first.cli().run(args);
        let nodes: Vec<&str> = ["n1", "n2", "n3"]
            .into_iter()
            .filter(|node| output.stdout.contains(&format!("\n{node} ")))
            .collect();
        (output.code, nodes, output.stderr, began.elapsed())
    };
    let (code, nodes, said, _) = ps();
    assert_eq!((code, nodes), (0, vec!["n1", "n2", "n3"]), "{said}");

    // The connection that is there dies without a word, and then none can be made.
    network.cut(2);
    for why in ["lost", "no connection within 2s"] {
        let (code, nodes, said, took) = ps();
        assert_eq!((code, nodes), (8, vec!["n1", "n2"]), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("node n3: ") && said.contains(why), "{said}");
        // Far below every other bound, with room for a busy machine.
        assert!(took < CONNECT_TIMEOUT * 3, "{took:?}");
    }

    network.mend(2);
    let began = Instant::now();
    loop {
        let (code, nodes, said, _) = ps();
        if code == 0 {
            assert_eq!(nodes, ["n1", "n2", "n3"]);
            break;
        }
        assert!(began.elapsed() < WAIT_TIMEOUT, "{said}");
    }
}

#[test]
fn copies_of_several_nodes_go_beside_each_other() {
    let mut fleet = TestFleet::start(2);
    let source = fleet.nodes[0].scratch().join("source");
    std::fs::create_dir(&source).unwrap();
    std::fs::write(source.join("file"), "content").unwrap();
    let source = source.to_str().unwrap();
    let (list, names) = (fleet.list(), fleet.names());
    let target = fleet.nodes[0].scratch().join("copies");
    let cp = |fleet: &TestFleet, target: &std::path::Path| {
        let target = target.to_str().unwrap();
        fleet.nodes[0]
            .cli()
            .run(["-n", &list, "cp", source, target])
    };
    cp(&fleet, &target).ok();
    for name in &names {
        let copied = std::fs::read_to_string(target.join(name).join("file")).unwrap();
        assert_eq!(copied, "content");
    }
    let said = cp(&fleet, std::path::Path::new("-")).failed(2);
    assert!(said.contains("several nodes"), "{said}");

    fleet.nodes[1].kill();
    let archive = fleet.nodes[0].scratch().join("copy.tar.gz");
    let said = cp(&fleet, &archive).failed(8);
    assert!(said.contains(&format!("node {}: ", names[1])), "{said}");
    let of = |name: &str| archive.with_file_name(format!("copy-{name}.tar.gz"));
    assert!(of(&names[0]).exists());
    assert!(!of(&names[1]).exists());
}
