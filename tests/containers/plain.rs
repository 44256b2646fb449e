//! Containers that only containerd knows.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::ContainersRequest;
use mainstay_container_clients::containerd::containers::container::Runtime;
use mainstay_container_clients::containerd::containers::containers_client::ContainersClient;
use mainstay_container_clients::containerd::containers::{Container, CreateContainerRequest};
use mainstay_testkit::require;
use tonic::{Code, Request};

use super::*;

const WAITS: &[&str] = &[
    "sh",
    "-c",
    "echo up; trap 'exit 0' TERM; sleep 1000000 & wait",
];

#[tokio::test]
async fn every_container_is_listed_and_a_broken_one_hides_no_other() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    containerd.run_container("web", &[], WAITS);
    containerd.run_container("done", &["--null-io"], &["true"]);
    containerd.ctr(&[
        "containers",
        "create",
        "mainstay.test/busybox:1",
        "never-run",
    ]);
    let broken = Container {
        id: "broken".to_owned(),
        image: "sha256:0000".to_owned(),
        spec: Some(prost_types::Any {
            type_url: "types.containerd.io/opencontainers/runtime-spec/1/Spec".to_owned(),
            value: b"{\"linux\":{\"namespaces\":7}".to_vec(),
        }),
        runtime: Some(Runtime {
            name: "no.such.runtime".to_owned(),
            options: None,
        }),
        ..Container::default()
    };
    let mut request = Request::new(CreateContainerRequest {
        container: Some(broken),
    });
    let namespace = "default".parse().unwrap();
    request
        .metadata_mut()
        .insert("containerd-namespace", namespace);
    let mut client = ContainersClient::new(containerd.connect().await);
    client.create(request).await.unwrap();

    let node = node_of(&containerd);
    let channel = node.connect().await;
    let exited = async {
        while by_id(
            &containers(&channel, "default", CONTAINERD).await.unwrap(),
            "done",
        )
        .pid != 0
        {}
    };
    soon("the end of a container", exited).await;
    let all = containers(&channel, "default", CONTAINERD).await.unwrap();
    let ids: Vec<&str> = all.iter().map(|container| container.id.as_str()).collect();
    assert_eq!(ids, ["broken", "done", "never-run", "web"]);
    for container in &all {
        assert_eq!(container.namespace, "default");
        assert_eq!(container.pod_id, container.id);
        assert_eq!(container.name, container.id);
        assert_eq!(container.internal_id, container.id);
        assert_eq!((&*container.uid, &*container.network_namespace), ("", ""));
    }
    let web = by_id(&all, "web");
    assert_eq!(
        (&*web.status, &*web.image),
        ("RUNNING", "mainstay.test/busybox:1")
    );
    runs(web.pid, "trap").await;
    for id in ["broken", "done", "never-run"] {
        let container = by_id(&all, id);
        assert_eq!((container.pid, &*container.status), (0, "STOPPED"), "{id}");
    }
    assert_eq!(by_id(&all, "broken").image, "sha256:0000");

    // Under the other service's name, in every namespace, and in those that hold nothing.
    let request = ContainersRequest {
        namespace: "default".to_owned(),
        driver: 0,
    };
    let mut machine = MachineServiceClient::new(channel.clone());
    let same = machine.containers(request).await.unwrap().into_inner();
    assert_eq!(same.messages[0].containers, all);
    assert_eq!(containers(&channel, "", CONTAINERD).await.unwrap(), all);
    assert_eq!(
        containers(&channel, "mainstay", CONTAINERD).await.unwrap(),
        []
    );
    assert_eq!(
        containers(&channel, "nothing", CONTAINERD).await.unwrap(),
        []
    );

    let table = node
        .cli()
        .run(["containers", "--namespace", "default"])
        .ok();
    let columns: Vec<&str> = table.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(columns, ["NAMESPACE", "ID", "IMAGE", "PID", "STATUS"]);
    let line = table.lines().find(|line| line.contains(" web ")).unwrap();
    assert!(
        line.contains(&web.pid.to_string()) && line.ends_with("RUNNING"),
        "{line}"
    );
    let json = node.cli().run(["containers", "-o", "json"]).json();
    assert_eq!(json[0]["containers"].as_array().unwrap().len(), 4);
    assert_eq!(json[0]["containers"][3]["internalId"], "web");
}

#[tokio::test]
async fn a_container_is_known_by_its_network_namespace() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let named = format!("network:{}", containerd.network("cni-7").display());
    containerd.run_container("named", &["--null-io", "--with-ns", &named], WAITS);
    containerd.run_container("own", &["--null-io"], WAITS);
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let all = containers(&channel, "default", CONTAINERD).await.unwrap();
    let of_process = format!("network:/proc/{}/ns/net", by_id(&all, "own").pid);
    containerd.run_container("shared", &["--null-io", "--with-ns", &of_process], WAITS);
    let all = containers(&channel, "default", CONTAINERD).await.unwrap();
    assert_eq!(by_id(&all, "named").network_namespace, "cni-7");
    assert_eq!(by_id(&all, "own").network_namespace, "");
    assert_eq!(by_id(&all, "shared").network_namespace, "");
}

#[tokio::test]
async fn use_is_measured_in_bytes_and_nanoseconds() {
    const HELD_BYTES: u64 = 32 << 20;
    require!(Containerd);
    let containerd = TestContainerd::start();
    let log = containerd.scratch().join("holds.log");
    let log_uri = format!("file://{}", log.display());
    let holds = "dd if=/dev/zero of=/dev/shm/held bs=1048576 count=32; echo held; sleep 1000000";
    containerd.run_container("holds", &["--log-uri", &log_uri], &["sh", "-c", holds]);
    containerd.run_container(
        "spins",
        &["--null-io"],
        &["sh", "-c", "while :; do :; done"],
    );
    containerd.run_container("done", &["--null-io"], &["true"]);
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let held = async {
        while !std::fs::read_to_string(&log).is_ok_and(|text| text.contains("held")) {
            tokio::task::yield_now().await;
        }
    };
    soon("the memory to be held", held).await;
    let of = |stats: &[Stat], id: &str| stats.iter().find(|stat| stat.id == id).unwrap().clone();
    let first = stats(&channel, "default", CONTAINERD).await.unwrap();
    let ids: Vec<&str> = first.iter().map(|stat| stat.id.as_str()).collect();
    assert_eq!(
        ids,
        ["done", "holds", "spins"],
        "the same list as Containers"
    );
    let used = of(&first, "holds").memory_usage;
    assert!(
        (HELD_BYTES..HELD_BYTES + (8 << 20)).contains(&used),
        "{used}"
    );
    assert_eq!(of(&first, "holds").pod_id, "holds");
    let before = of(&first, "spins");
    assert!(before.memory_usage < 8 << 20, "{before:?}");
    let began = std::time::Instant::now();
    // A tenth of a second of processor time is 10⁸, whatever the machine has to do besides.
    let grown = async {
        loop {
            let now = of(&stats(&channel, "", CONTAINERD).await.unwrap(), "spins").cpu_usage;
            if now > before.cpu_usage + 100_000_000 {
                return now - before.cpu_usage;
            }
        }
    };
    let grown = soon("processor time", grown).await;
    assert!(
        u128::from(grown) < began.elapsed().as_nanos() * 2,
        "one process: {grown}"
    );
    let done = of(&first, "done");
    assert_eq!((done.memory_usage, done.cpu_usage), (0, 0));

    let table = node.cli().run(["stats"]).ok();
    let line = table.lines().find(|line| line.contains(" holds ")).unwrap();
    assert!(line.contains(" MiB ") && line.contains(" 0:00."), "{table}");
    let json = node
        .cli()
        .run(["stats", "--namespace", "default", "-o", "json"])
        .json();
    assert!(json[0]["stats"][1]["memoryUsage"].as_u64().unwrap() >= HELD_BYTES);
}

#[tokio::test]
async fn a_restarted_container_runs_again_as_another_process() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let log = containerd.scratch().join("web.log");
    let log_uri = format!("file://{}", log.display());
    containerd.run_container("web", &["--log-uri", &log_uri], WAITS);
    containerd.run_container("piped", &[], WAITS);
    containerd.run_container("terminal", &["--tty"], WAITS);
    containerd.run_container("paused", &["--null-io"], WAITS);
    containerd.ctr(&["tasks", "pause", "paused"]);
    let label = "com.docker/engine.bundle.path=/x";
    containerd.run_container("docked", &["--null-io", "--label", label], WAITS);
    containerd.run_container("done", &["--null-io"], &["true"]);
    // As process 1 it does not hear SIGTERM.
    containerd.run_container("stubborn", &["--null-io"], &["sleep", "1000000"]);
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let pid = async |id: &str| {
        let all = containers(&channel, "default", CONTAINERD).await.unwrap();
        by_id(&all, id).pid
    };
    let all = containers(&channel, "default", CONTAINERD).await.unwrap();
    assert_eq!(by_id(&all, "paused").status, "PAUSED");
    for id in ["web", "piped", "terminal", "paused"] {
        let before = pid(id).await;
        restart(&channel, "default", id, CONTAINERD).await.unwrap();
        let all = containers(&channel, "default", CONTAINERD).await.unwrap();
        let after = by_id(&all, id);
        assert_eq!(after.status, "RUNNING");
        assert_ne!(after.pid, before);
        runs(after.pid, "trap").await;
    }
    let written_twice = async {
        while std::fs::read_to_string(&log).unwrap() != "up\nup\n" {
            tokio::task::yield_now().await;
        }
    };
    soon("the output of both", written_twice).await;

    let said = node.cli().run(["restart", "web"]).ok();
    assert!(said.ends_with("container \"web\" restarted\n"), "{said}");
    let json = node.cli().run(["restart", "web", "-o", "json"]).json();
    assert_eq!(json.as_array().unwrap().len(), 1);

    let exited = async { while pid("done").await != 0 {} };
    soon("the end of a container", exited).await;
    restart(&channel, "default", "done", CONTAINERD)
        .await
        .expect("it is started");

    let before = pid("docked").await;
    let refused = restart(&channel, "default", "docked", CONTAINERD).await;
    assert_eq!(refused.unwrap_err().code(), Code::FailedPrecondition);
    assert_eq!(pid("docked").await, before, "Docker would take it for dead");

    let before = pid("stubborn").await;
    let (first, second) = tokio::join!(
        restart(&channel, "default", "stubborn", CONTAINERD),
        restart(&channel, "default", "stubborn", CONTAINERD),
    );
    let refused = first.and(second).expect_err("one of them had to wait");
    assert_eq!(refused.code(), Code::Aborted, "{refused}");
    assert_ne!(pid("stubborn").await, before, "ended by force");

    let unknown = restart(&channel, "default", "x", CONTAINERD)
        .await
        .unwrap_err();
    assert_eq!(unknown.code(), Code::NotFound);
    assert_eq!(unknown.message(), "container \"x\" not found");
    let said = node.cli().run(["restart", "x"]).failed(6);
    assert_eq!(said, "error: container \"x\" not found\n");
}

#[tokio::test]
async fn a_cancelled_restart_leaves_no_container_stopped() {
    require!(Containerd);
    let containerd = TestContainerd::start();
    let slow = "echo up; trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done";
    containerd.run_container("slow", &["--null-io"], &["sh", "-c", slow]);
    let node = node_of(&containerd);
    let channel = node.connect().await;
    let all = containers(&channel, "default", CONTAINERD).await.unwrap();
    let before = by_id(&all, "slow").pid;
    // When one of two is refused, the node has begun with the other.
    let mut first = Box::pin(restart(&channel, "default", "slow", CONTAINERD));
    let mut second = Box::pin(restart(&channel, "default", "slow", CONTAINERD));
    let refused = tokio::select! {
        answer = &mut first => answer,
        answer = &mut second => answer,
    };
    assert_eq!(refused.unwrap_err().code(), Code::Aborted);
    drop((first, second));
    let again = async {
        loop {
            let all = containers(&channel, "default", CONTAINERD).await.unwrap();
            let now = by_id(&all, "slow");
            if now.pid != before && now.status == "RUNNING" {
                return;
            }
        }
    };
    soon("the container to run again", again).await;
}
