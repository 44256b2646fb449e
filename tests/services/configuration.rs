//! Services in the configuration file and in drop-ins: what is refused, and what a reload does.

use mainstay_testkit::{TestNode, require};
use rustix::process::Signal;

use super::service_node::{ServiceNode, processes_with};

#[test]
fn bad_services_are_refused_with_file_line_and_reason() {
    for (text, wanted) in [
        ("[services.a]\n", "missing field `command`"),
        ("[services.a]\ncommand = ''\n", "line 2"),
        ("[services.a]\ncommand = []\n", "the command is empty"),
        (
            "[services.a]\ncommand = \"sh -c 'x\"\n",
            "unterminated quote",
        ),
        (
            "[services.a]\ncommand = 7\n",
            "a command is a text or a list of texts",
        ),
        (
            "[services.'a b']\ncommand = 'x'\n",
            "invalid service name \"a b\"",
        ),
        (
            "[services.mainstay]\ncommand = 'x'\n",
            "it is the daemon's own",
        ),
        (
            "[services.kernel]\ncommand = 'x'\n",
            "it is a log of the node's own",
        ),
        (
            "[services.a]\ncommand = 'x'\nrequired = ['b']\n",
            "unknown field `required`",
        ),
        (
            "[services.a]\ncommand = 'x'\nrestart = 'sometimes'\n",
            "line 3",
        ),
        (
            "[services.a]\ncommand = 'x'\nhealth = { period = '1s' }\n",
            "one of exec, tcp, http and grpc",
        ),
        (
            "[services.a]\ncommand = 'x'\nhealth = { exec = 'x', tcp = '127.0.0.1:1' }\n",
            "one of exec, tcp, http and grpc",
        ),
        (
            "[services.a]\ncommand = 'x'\nhealth = { tcp = 'localhost' }\n",
            "line 3",
        ),
        (
            "[services.a]\ncommand = 'x'\nhealth = { http = 'ftp://x' }\n",
            "ftp://x",
        ),
        (
            "[services.a]\ncommand = 'x'\nhealth = { exec = 'x', period = '0s' }\n",
            "timeout or period of 0",
        ),
        (
            "[services.a]\ncommand = 'x'\nallow = ['reboot']\n",
            "line 3",
        ),
        (
            "[services.a]\ncommand = 'x'\nisolate = ['mount']\n",
            "PID namespace must share",
        ),
        (
            "[services.a]\ncommand = 'x'\nlimits = { cpu = 0.0 }\n",
            "number of CPUs",
        ),
        (
            "[services.a]\ncommand = 'x'\nlimits = { pids = 0 }\n",
            "0 processes",
        ),
        (
            "[services.a]\ncommand = 'x'\nlimits = { cpuset = 'all' }\n",
            "line 3",
        ),
        (
            "[services.a]\ncommand = 'x'\nlimits = { io = [{ device = '/no/disk', read_bytes = '1MiB' }] }\n",
            "/no/disk",
        ),
        (
            "[services.a]\ncommand = 'x'\nstop_signal = 'SIGLOST'\n",
            "SIGLOST",
        ),
        (
            "[services.a]\ncommand = 'x'\nworking_directory = 'relative'\n",
            "absolute path",
        ),
        (
            "[services.a]\ncommand = 'x'\nenvironment_files = ['relative']\n",
            "absolute path",
        ),
        (
            "[services.a.environment]\n'a=b' = 'c'\n[services.a]\ncommand = 'x'\n",
            "a=b",
        ),
        (
            "[services.a]\ncommand = 'x'\nrequires = ['b']\n",
            "service \"a\" refers to service \"b\", which is not defined",
        ),
        (
            "[services.a]\ncommand = 'x'\nrequires = ['b']\n[services.b]\ncommand = 'x'\nafter = ['c']\n\
             [services.c]\ncommand = 'x'\nrequires = ['a']\n",
            "cycle: a → b → c → a",
        ),
    ] {
        let (stderr, _) = TestNode::builder().config(text).refused();
        assert!(stderr.contains(wanted), "{text}\n{stderr}");
    }
}

#[test]
fn bad_drop_ins_are_refused_with_their_name() {
    for (files, wanted) in [
        (&[("a.toml", "[services.a]\ncommnd = 'x'\n")][..], "a.toml"),
        (
            &[("a.toml", "listen = '127.0.0.1:1'\n")],
            "unknown field `listen`",
        ),
        (
            &[
                ("1.toml", "[services.a]\ncommand = 'x'\n"),
                ("2.toml", "[services.a]\ncommand = 'y'\n"),
            ],
            "1.toml and in",
        ),
        (
            &[("a.toml", "[services.base]\ncommand = 'x'\n")],
            "is defined twice",
        ),
        (
            &[(
                "a.toml",
                "[services.z]\ncommand = 'x'\nisolate = ['mount']\n",
            )],
            "a.toml",
        ),
    ] {
        let builder =
            TestNode::builder().config("[services.base]\ncommand = 'true'\nenabled = false\n");
        let directory = builder.scratch().join("services.d");
        std::fs::create_dir(&directory).unwrap();
        for (name, text) in files {
            std::fs::write(directory.join(name), text).unwrap();
        }
        let (stderr, _) = builder.refused();
        assert!(stderr.contains(wanted), "{files:?}\n{stderr}");
    }
}

#[tokio::test]
async fn a_reload_adds_removes_and_changes_services() {
    require!(Root);
    let base = "[services.keep]\ncommand = ['sleep', '76001']\ndescription = 'one'\n\
                [services.drop]\ncommand = ['sleep', '76002']\n\
                [services.change]\ncommand = ['sleep', '76003']\n";
    let node = ServiceNode::start("services-reload", base);
    for id in ["keep", "drop", "change"] {
        node.until_state(id, "Running").await;
    }
    let keep = node.pid("keep").await;
    node.reload(
        "[services.keep]\ncommand = ['sleep', '76001']\ndescription = 'two'\n\
         restart = 'on-failure'\nhealth = { exec = 'true', delay = '1ms' }\n\
         [services.change]\ncommand = ['sleep', '76004']\n\
         [services.new]\ncommand = ['sleep', '76005']\nrequires = ['change']\n",
    );
    let services = node
        .until_all(|services| {
            let names: Vec<_> = services.iter().map(|one| one.id.clone()).collect();
            let up = services.iter().all(|one| one.state == "Running");
            (up && !names.contains(&"drop".to_owned())).then_some(names)
        })
        .await;
    assert_eq!(services, ["change", "keep", "new"]);
    node.until("keep", super::service_node::is_healthy).await;
    assert_eq!(
        node.pid("keep").await,
        keep,
        "only its supervision has changed"
    );
    node.until("change", |_| processes_with("76003").is_empty())
        .await;
    assert_eq!(processes_with("76004").len(), 1);
    assert!(processes_with("76002").is_empty());
    let gone = node.node.cli().run(["logs", "drop"]).failed(6);
    assert!(gone.contains("was not registered"), "{gone}");
}

#[tokio::test]
async fn drop_ins_are_read_again_and_a_bad_one_changes_nothing() {
    require!(Root);
    let node = ServiceNode::start_as("services-drop-ins", |builder| {
        let directory = builder.scratch().join("services.d");
        std::fs::create_dir(&directory).unwrap();
        std::fs::write(
            directory.join("20-two.toml"),
            "[services.b]\ncommand = ['sleep', '76012']\nrequires = ['a']\n[services.c]\ncommand = ['sleep', '76013']\n",
        )
        .unwrap();
        std::fs::write(directory.join(".swap.toml"), "nonsense").unwrap();
        std::fs::write(directory.join("notes.txt"), "nonsense").unwrap();
        (
            builder,
            "[services.a]\ncommand = ['sleep', '76011']\n".to_owned(),
        )
    });
    node.until_state("b", "Running").await;
    node.until_state("c", "Running").await;
    let directory = node.node.scratch().join("services.d");
    std::fs::write(
        directory.join("30-three.toml"),
        "[services.d]\ncommand = 7\n",
    )
    .unwrap();
    node.node.signal(Signal::HUP);
    node.node.wait_for_log("cannot reload the configuration");
    node.node.wait_for_log("30-three.toml");
    let names: Vec<_> = node.list().await.into_iter().map(|one| one.id).collect();
    assert_eq!(names, ["a", "b", "c"]);
    std::fs::write(
        directory.join("30-three.toml"),
        "[services.d]\ncommand = ['sleep', '76014']\n",
    )
    .unwrap();
    std::fs::remove_file(directory.join("20-two.toml")).unwrap();
    node.node.signal(Signal::HUP);
    node.until_all(|services| {
        let names: Vec<_> = services.iter().map(|one| one.id.as_str()).collect();
        (names == ["a", "d"]).then_some(())
    })
    .await;
    node.until_state("d", "Running").await;
    assert!(processes_with("76012").is_empty() && processes_with("76013").is_empty());
}
