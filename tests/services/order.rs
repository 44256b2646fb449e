//! Services start in the order of their dependencies, and stop in reverse.

use mainstay_api::event;
use mainstay_api::machine::service_state_event::Action;
use mainstay_api::machine::{EventsRequest, ServiceStateEvent};
use mainstay_testkit::{require, soon};

use super::service_node::{ServiceNode, is_healthy, message, processes_with};

const CHAIN: &str = "
[services.app]
command = ['sleep', '70001']
requires = ['cache']
[services.cache]
command = ['sleep', '70002']
requires = ['db']
[services.db]
command = ['sleep', '70003']
health = { exec = 'true', delay = '10ms', period = '1h' }
";

/// Everything that was published about services, as `<service> <action>`.
async fn published(node: &ServiceNode) -> Vec<String> {
    let request = EventsRequest {
        tail_events: -1,
        until_now: true,
        ..EventsRequest::default()
    };
    let mut stream = node.events(request).await;
    let mut seen = Vec::new();
    while let Some(event) = soon("the events", stream.message()).await.unwrap() {
        let data = event.data;
        let state = data.and_then(|data| event::unpack::<ServiceStateEvent>(&data).ok());
        seen.extend(
            state.map(|state| format!("{} {}", state.service, state.action().as_str_name())),
        );
    }
    seen
}

#[tokio::test]
async fn services_wait_for_what_they_require_and_go_down_before_it() {
    require!(Root);
    let node = ServiceNode::start("services-order", CHAIN);
    node.until_state("app", "Running").await;
    let app = node.service("app").await;
    assert!(
        !is_healthy(&app) && app.health.unwrap().unknown,
        "it has no check"
    );
    node.stop_service("db").await.unwrap();
    assert!(processes_with("70001").is_empty() && processes_with("70002").is_empty());
    assert_eq!(node.service("db").await.state, "Finished");
    let app = node.service("app").await;
    assert_eq!(
        (app.state.as_str(), message(&app)),
        ("Waiting", "waiting for cache (Waiting)")
    );

    let events = published(&node).await;
    let at = |service: &str, action: Action| {
        let wanted = format!("{service} {}", action.as_str_name());
        let place = events.iter().position(|event| *event == wanted);
        place.unwrap_or_else(|| panic!("no {wanted} in {events:?}"))
    };
    assert!(at("db", Action::Running) < at("cache", Action::Starting));
    assert!(at("cache", Action::Running) < at("app", Action::Starting));
    let last = |service: &str, action: Action| {
        let wanted = format!("{service} {}", action.as_str_name());
        events.iter().rposition(|event| *event == wanted).unwrap()
    };
    assert!(last("app", Action::Finished) < last("cache", Action::Finished));
    assert!(last("cache", Action::Finished) < last("db", Action::Finished));

    // Those that were up come back with what they require.
    node.start_service("db").await.unwrap();
    node.until_state("app", "Running").await;
}

#[tokio::test]
async fn after_waits_only_for_services_that_are_wanted() {
    require!(Root);
    let node = ServiceNode::start(
        "services-after",
        "[services.late]\ncommand = ['sleep', '70011']\nafter = ['once', 'off']\n\
         [services.once]\ncommand = 'true'\noneshot = true\n\
         [services.off]\ncommand = ['sleep', '70012']\nenabled = false\n",
    );
    node.until_state("late", "Running").await;
    assert_eq!(node.service("once").await.state, "Finished");
    assert_eq!(node.service("off").await.state, "Initialized");
    assert!(processes_with("70012").is_empty());
    node.start_service("off").await.unwrap();
    node.until_state("off", "Running").await;
}

#[tokio::test]
async fn two_hundred_services_in_one_deep_chain_start_and_stop() {
    require!(Root);
    let mut services = String::new();
    for number in 0..200 {
        services += &format!("[services.s{number}]\ncommand = ['sleep', '70100']\n");
        if number > 0 {
            services += &format!("requires = ['s{}']\n", number - 1);
        }
    }
    let node = ServiceNode::start("services-deep", &services);
    node.until_all(|services| {
        services
            .iter()
            .all(|one| one.state == "Running")
            .then_some(())
    })
    .await;
    assert_eq!(processes_with("70100").len(), 200);
    node.stop_service("s0").await.unwrap();
    assert!(processes_with("70100").is_empty());
}
