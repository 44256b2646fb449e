//! Services in the other views of the node: workloads, logs, events, output by PID.

use mainstay_api::event;
use mainstay_api::machine::{EventsRequest, LogsRequest, ServiceStateEvent};
use mainstay_api::observe::GetSubProcessStreamRequest;
use mainstay_api::observe::observe_client::ObserveClient;
use mainstay_api::os::{ContainersRequest, RestartRequest, StatsRequest};
use mainstay_testkit::{require, soon};

use super::service_node::{ServiceNode, is_healthy};

const SERVICES: &str = "
[services.web]
command = \"sh -c 'echo hello; echo oops >&2; exec sleep 77001'\"
health = { exec = 'true', delay = '1ms' }
[services.off]
command = ['sleep', '77002']
enabled = false
";

#[tokio::test]
async fn services_are_workloads_of_namespace_system() {
    require!(Root);
    let node = ServiceNode::start("services-views", SERVICES);
    node.until("web", is_healthy).await;
    let mut machine = node.machine().await;
    for namespace in ["system", ""] {
        let request = ContainersRequest {
            namespace: namespace.to_owned(),
            driver: 0,
        };
        let listed = machine.containers(request).await.unwrap().into_inner();
        let containers = &listed.messages[0].containers;
        let find = |id: &str| containers.iter().find(|one| one.id == id).unwrap();
        let web = find("web");
        assert_eq!(
            (web.namespace.as_str(), web.status.as_str()),
            ("system", "RUNNING")
        );
        assert!(web.pid > 0);
        assert_eq!(
            (find("off").status.as_str(), find("off").pid),
            ("INITIALIZED", 0)
        );
    }
    let request = StatsRequest {
        namespace: "system".to_owned(),
        driver: 0,
    };
    let stats = machine.stats(request).await.unwrap().into_inner();
    let [stat] = stats.messages[0].stats.as_slice() else {
        panic!("{stats:?}");
    };
    assert!(stat.id == "web" && stat.memory_usage > 0);
    let ids = machine.logs_containers(()).await.unwrap().into_inner();
    assert!(ids.messages[0].ids.iter().any(|id| id == "web"));

    let before = node.pid("web").await;
    let request = RestartRequest {
        namespace: "system".to_owned(),
        id: "web".to_owned(),
        driver: 0,
    };
    machine.restart(request).await.unwrap();
    node.until_state("web", "Running").await;
    assert_ne!(node.pid("web").await, before);
}

#[tokio::test]
async fn the_output_of_a_service_is_read_by_its_id_and_by_its_pid() {
    require!(Root);
    let node = ServiceNode::start("services-output", SERVICES);
    node.until_line("web", "hello").await;
    let mut machine = node.machine().await;
    // Without a namespace a service comes before containers.
    let request = LogsRequest {
        id: "web".to_owned(),
        tail_lines: 1,
        ..LogsRequest::default()
    };
    let mut stream = machine.logs(request).await.unwrap().into_inner();
    let data = soon("the log", stream.message()).await.unwrap().unwrap();
    assert!(
        matches!(&data.bytes[..], b"hello\n" | b"oops\n"),
        "{data:?}"
    );
    let mut observe = ObserveClient::new(node.node.connect_locally().await);
    let request = GetSubProcessStreamRequest {
        channel_type: 1,
        process_id: node.pid("web").await.into(),
        ..GetSubProcessStreamRequest::default()
    };
    let stream = observe.get_sub_process_stream(request).await.unwrap();
    let mut stream = stream.into_inner();
    let item = soon("a line", stream.message()).await.unwrap().unwrap();
    assert_eq!(
        (item.channel.as_str(), item.line.as_str()),
        ("web::stderr", "oops")
    );
    node.stop_service("web").await.unwrap();
    assert!(soon("the end", stream.message()).await.unwrap().is_none());
}

#[tokio::test]
async fn every_change_of_state_and_health_is_an_event() {
    require!(Root);
    let node = ServiceNode::start("services-events", SERVICES);
    node.until("web", is_healthy).await;
    node.stop_service("web").await.unwrap();
    let request = EventsRequest {
        tail_events: -1,
        until_now: true,
        ..EventsRequest::default()
    };
    let mut stream = node.events(request).await;
    let mut seen = Vec::new();
    while let Some(event) = soon("the events", stream.message()).await.unwrap() {
        let state = event
            .data
            .and_then(|data| event::unpack::<ServiceStateEvent>(&data).ok());
        if let Some(state) = state.filter(|state| state.service == "web") {
            let health = state.health.clone().unwrap();
            seen.push((state.action().as_str_name(), health.unknown, health.healthy));
        }
    }
    assert_eq!(
        seen,
        [
            ("STARTING", true, false),
            ("RUNNING", true, false),
            ("RUNNING", false, true),
            ("STOPPING", false, true),
            ("FINISHED", true, false),
        ]
    );
}
