//! `mainstay support`: complete, without keys, partial when something fails, gone when interrupted.

use std::collections::BTreeMap;
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use flate2::read::GzDecoder;
use mainstay_testkit::{
    ANY_TARGET, CellClient, Sweeper, TestFleet, TestNode, WAIT_TIMEOUT, dead_address, require,
    wait_for_exit,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify;
use rustix::process::{Pid, Signal, kill_process};

/// The files of an archive, without its top directory.
fn files(archive: &Path) -> BTreeMap<String, String> {
    let file = std::fs::File::open(archive).unwrap();
    let mut archive = tar::Archive::new(GzDecoder::new(file));
    let entries = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let (top, name) = path.split_once('/').unwrap();
        assert!(top.starts_with("support-"), "{path}");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let content = String::from_utf8_lossy(&content).into_owned();
        (name.to_owned(), content)
    });
    entries.collect()
}

fn entries(dir: &Path) -> Vec<PathBuf> {
    let all = std::fs::read_dir(dir).unwrap();
    all.map(|entry| entry.unwrap().path()).collect()
}

/// The directory of a node in the archive.
fn directory(address: &str) -> String {
    address.replace(':', "_")
}

/// A configuration that no container runtime of the machine interferes with.
fn config(cgroup: Option<&str>) -> String {
    let cells = cgroup.map(|name| format!("[cells]\ncgroup = {name:?}\n"));
    format!(
        "[containers]\ncontainerd = '/nonexistent/containerd.sock'\n{}",
        cells.unwrap_or_default()
    )
}

/// Lines of key material of the node: whatever the PEM files hold beside their marks.
fn key_material(node: &TestNode) -> Vec<String> {
    let mut found = Vec::new();
    let mut dirs = vec![node.state().join("pki")];
    while let Some(dir) = dirs.pop() {
        for path in entries(&dir) {
            if path.is_dir() {
                dirs.push(path);
            } else if path.extension().is_some_and(|kind| kind == "key") {
                let text = std::fs::read_to_string(path).unwrap();
                let lines = text.lines().filter(|line| !line.starts_with('-'));
                found.extend(lines.filter(|line| line.len() > 20).map(str::to_owned));
            }
        }
    }
    assert!(!found.is_empty());
    found
}

#[tokio::test]
async fn an_archive_has_logs_events_and_readings_and_no_private_key() {
    require!(Root);
    let sweeper = Sweeper::start("e2e-support");
    let builder = TestNode::builder().config(&config(Some(sweeper.cgroup())));
    let node = builder.start();
    let mut client = CellClient::new(&node.connect_locally().await);
    client.allocate("web").await.unwrap();
    let key = node.state().join("pki/ca.key");
    let pem = std::fs::read_to_string(&key).unwrap();
    // A program that leaks a key into its log, as one line and as many.
    let leak = node.scratch().join("leak");
    std::fs::write(
        &leak,
        format!("before\n{pem}after\nkey={}\n", pem.replace('\n', "\\n")),
    )
    .unwrap();
    let command = format!("cat {}", leak.display());
    let pid = client.start("web", "leaky", &command).await.unwrap();
    let mut output = client.output(pid, 1).await.unwrap();
    while output.message().await.unwrap().is_some() {}

    let said = node.cli().run(["support", "out.tar.gz"]);
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert!(said.stderr.contains("out.tar.gz"), "{}", said.stderr);
    let archive = node.scratch().join("out.tar.gz");
    let mode = std::fs::metadata(&archive).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let files = files(&archive);
    let of = |name: &str| {
        let path = format!("{}/{name}", directory(&node.listen().to_string()));
        let content = files.get(&path);
        content.unwrap_or_else(|| panic!("{path} is not in {:?}", files.keys()))
    };
    for name in [
        "version",
        "hostname",
        "load",
        "memory",
        "cpus",
        "system",
        "processes",
        "mounts",
        "disks",
        "interfaces",
        "routes",
        "netstat",
        "cgroups",
        "time",
        "cells",
        "cell-stats",
    ] {
        let text = of(&format!("{name}.json"));
        let json: serde_json::Value = serde_json::from_str(text).unwrap();
        assert!(json.is_object(), "{name}: {text}");
    }
    assert!(of("interfaces.json").contains("\"lo\""));
    assert!(of("configuration.toml").contains("/nonexistent/containerd.sock"));
    assert!(of("logs/system-mainstay.log").contains("serving"));
    assert!(of("events.jsonl").lines().count() > 0);
    of("dmesg.log");
    of("logs/system-audit.log");
    let leaked = of("logs/mainstay-web_leaky.log");
    assert!(
        leaked.contains("before") && leaked.contains("after"),
        "{leaked}"
    );
    assert!(leaked.contains("private key removed"), "{leaked}");
    let errors = &files["errors.txt"];
    assert!(!errors.contains("failed:"), "{errors}");
    assert!(
        errors.contains("absent: ") && errors.contains("containers"),
        "{errors}"
    );
    let secrets = key_material(&node);
    for (name, content) in &files {
        assert!(!content.contains("PRIVATE KEY"), "{name}");
        for secret in &secrets {
            assert!(!content.contains(secret), "{name} has key material");
        }
    }
    client.free("web").await.unwrap();
}

#[test]
fn a_reader_gets_what_it_may_read_and_exit_code_1() {
    let node = TestNode::builder().config(&config(None)).start();
    let reader = [
        "pki",
        "client",
        "--name",
        "r",
        "--role",
        "os:reader",
        "--out",
        "r.yaml",
    ];
    node.cli().run(reader).ok();
    let args = [
        "support",
        "out.tgz",
        "--tail",
        "5",
        "--client-config",
        "r.yaml",
    ];
    let address = node.listen().to_string();
    let said = node
        .cli()
        .run(args.iter().chain(&["-e", &address]))
        .failed(1);
    assert!(said.contains("incomplete"), "{said}");
    let files = files(&node.scratch().join("out.tgz"));
    let errors = &files["errors.txt"];
    assert!(errors.contains("configuration: not authorized"), "{errors}");
    assert_eq!(errors.matches("failed:").count(), 1, "{errors}");
    let dir = directory(&address);
    assert!(files.contains_key(&format!("{dir}/processes.json")));
    let log = &files[&format!("{dir}/logs/system-mainstay.log")];
    assert!(log.lines().count() <= 5, "{log}");
}

#[test]
fn a_dead_node_costs_only_its_own_part() {
    let fleet = TestFleet::with_config(2, &config(None));
    let dead = dead_address().to_string();
    let nodes = format!("{},{dead}", fleet.list());
    let first = &fleet.nodes[0];
    let said = first
        .cli()
        .run(["support", "-n", &nodes, "out.tar.gz"])
        .failed(8);
    assert!(said.contains(&dead), "{said}");
    let files = files(&first.scratch().join("out.tar.gz"));
    for name in fleet.names() {
        for file in ["version.json", "logs/system-mainstay.log", "events.jsonl"] {
            let path = format!("{}/{file}", directory(&name));
            assert!(files.contains_key(&path), "{path}: {:?}", files.keys());
        }
    }
    assert!(files["errors.txt"].contains(&format!("failed: {dead}: version")));
    assert!(!files.keys().any(|path| path.starts_with(&directory(&dead))));
}

#[test]
fn without_any_answer_there_is_no_archive() {
    let node = TestNode::builder().config(ANY_TARGET).start();
    let dir = node.scratch().join("archives");
    std::fs::create_dir(&dir).unwrap();
    let dead = dead_address().to_string();
    node.cli()
        .run(["support", "-e", &dead, "archives/a.tar.gz"])
        .failed(3);
    node.cli()
        .run(["support", "-n", &dead, "archives/a.tar.gz"])
        .failed(3);
    node.cli()
        .run(["support", "no/such/directory/a.tar.gz"])
        .failed(1);
    node.cli().run(["support", "archives"]).failed(1);
    for bad in [
        &["support", "-o", "json"][..],
        &["support", "--tail", "0"],
        &["support", "--tail", "x"],
    ] {
        node.cli().run(bad).failed(2);
    }
    assert_eq!(entries(&dir), Vec::<PathBuf>::new());
}

#[test]
fn an_interrupted_archive_is_removed() {
    let fleet = TestFleet::start(2);
    let first = &fleet.nodes[0];
    let dir = first.scratch().join("archives");
    std::fs::create_dir(&dir).unwrap();
    // It never answers, so that the collection cannot end.
    fleet.nodes[1].signal(Signal::STOP);
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let created = Created::below(&dir);
        let list = fleet.list();
        let args = [
            "support",
            "-n",
            &list,
            "--timeout",
            "1h",
            "archives/a.tar.gz",
        ];
        let mut child = first.cli().spawn(args);
        created.wait();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let status = wait_for_exit(&mut child);
        assert_eq!(status.code(), Some(code));
        assert_eq!(entries(&dir), Vec::<PathBuf>::new());
    }
    fleet.nodes[1].signal(Signal::CONT);
}

/// The next file that is created in a directory.
struct Created(OwnedFd);

impl Created {
    fn below(dir: &Path) -> Self {
        let inotify = inotify::init(inotify::CreateFlags::CLOEXEC).unwrap();
        inotify::add_watch(&inotify, dir, inotify::WatchFlags::CREATE).unwrap();
        Self(inotify)
    }

    fn wait(self) {
        let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
        let bound = Timespec {
            tv_sec: WAIT_TIMEOUT.as_secs().try_into().unwrap(),
            tv_nsec: 0,
        };
        assert_eq!(poll(&mut fds, Some(&bound)), Ok(1), "nothing was created");
    }
}
