//! `Events`: kept, resumable, in order.

use mainstay_api::event;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::service_state_event::Action;
use mainstay_api::machine::{Event, EventsRequest, ServiceStateEvent};
use mainstay_testkit::{TestNode, soon};
use tonic::{Code, Status};

async fn kept(node: &TestNode, request: EventsRequest) -> Result<Vec<Event>, Status> {
    let mut client = MachineServiceClient::new(node.connect().await);
    let request = EventsRequest {
        until_now: true,
        ..request
    };
    let mut stream = client.events(request).await?.into_inner();
    let mut events = Vec::new();
    while let Some(event) = soon("kept events to end", stream.message()).await? {
        events.push(event);
    }
    Ok(events)
}

fn state(event: &Event) -> ServiceStateEvent {
    event::unpack(event.data.as_ref().unwrap()).unwrap()
}

#[tokio::test]
async fn lifecycle_events_are_ordered_and_survive_a_restart() {
    let node = TestNode::start().restart();
    let events = kept(
        &node,
        EventsRequest {
            tail_events: -1,
            ..Default::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(
        events[0],
        Event::default(),
        "one empty event as a sign of life"
    );
    let actions: Vec<Action> = events[1..]
        .iter()
        .map(|event| state(event).action())
        .collect();
    use Action::{Finished, Running, Starting, Stopping};
    assert_eq!(
        actions,
        [Starting, Running, Stopping, Finished, Starting, Running]
    );
    for event in &events[1..] {
        assert_eq!(
            event.data.as_ref().unwrap().type_url,
            "talos/runtime/machine.ServiceStateEvent"
        );
        assert_eq!(event.id.len(), 32);
    }
    let ids: Vec<&String> = events[1..].iter().map(|event| &event.id).collect();
    assert!(ids.is_sorted());
}

#[tokio::test]
async fn a_stream_resumes_after_the_last_event_a_client_saw() {
    let node = TestNode::start();
    let all = kept(
        &node,
        EventsRequest {
            tail_events: -1,
            ..Default::default()
        },
    )
    .await
    .unwrap();
    let first = all[1].id.clone();
    let rest = kept(
        &node,
        EventsRequest {
            tail_id: first,
            ..Default::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(rest[1..], all[2..]);
}

#[tokio::test]
async fn the_last_n_and_the_last_seconds() {
    let node = TestNode::start();
    let last = kept(
        &node,
        EventsRequest {
            tail_events: 1,
            ..Default::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(last.len(), 2);
    assert_eq!(state(&last[1]).action(), Action::Running);
    let recent = kept(
        &node,
        EventsRequest {
            tail_seconds: 3600,
            ..Default::default()
        },
    )
    .await
    .unwrap();
    assert_eq!(recent.len(), 3);
}

#[tokio::test]
async fn without_history_only_what_is_new_follows_the_hello() {
    let node = TestNode::start();
    let mut client = MachineServiceClient::new(node.connect().await);
    let mut live = client
        .events(EventsRequest::default())
        .await
        .unwrap()
        .into_inner();
    let hello = soon("the hello", live.message()).await.unwrap();
    assert_eq!(hello, Some(Event::default()));
    node.signal(rustix::process::Signal::HUP);
    let event = soon("the reload event", live.message())
        .await
        .unwrap()
        .unwrap();
    assert_eq!(state(&event).message, "configuration reloaded");
}

#[tokio::test]
async fn bad_requests_are_refused_with_what_to_do() {
    let node = TestNode::start();
    for (request, code, word) in [
        (
            EventsRequest {
                tail_id: "nonsense".into(),
                ..Default::default()
            },
            Code::InvalidArgument,
            "nonsense",
        ),
        (
            EventsRequest {
                tail_id: "f".repeat(32),
                ..Default::default()
            },
            Code::NotFound,
            "event",
        ),
        (
            EventsRequest {
                with_actor_id: "x".repeat(1 << 20),
                ..Default::default()
            },
            Code::InvalidArgument,
            "with_actor_id",
        ),
        (
            EventsRequest {
                tail_seconds: -5,
                ..Default::default()
            },
            Code::InvalidArgument,
            "negative",
        ),
        (
            EventsRequest {
                tail_events: 1,
                tail_seconds: 1,
                ..Default::default()
            },
            Code::InvalidArgument,
            "exclude",
        ),
    ] {
        let status = kept(&node, request).await.unwrap_err();
        assert_eq!(status.code(), code, "{status}");
        assert!(status.message().contains(word), "{status}");
    }
}

#[test]
fn the_command_prints_one_json_document_a_line() {
    let node = TestNode::start();
    let text = node
        .cli()
        .run(["events", "--tail", "10", "-o", "json"])
        .ok();
    let values: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(values.len(), 2);
    assert_eq!(values[1]["type"], "machine.ServiceStateEvent");
    assert_eq!(values[1]["data"]["action"], "RUNNING");
    assert!(values[1]["time"].as_str().unwrap().starts_with("20"));
    let after = values[0]["id"].as_str().unwrap();
    let rest = node
        .cli()
        .run(["events", "--after", after, "-o", "json"])
        .ok();
    assert_eq!(rest.lines().count(), 1);
    let table = node.cli().run(["events", "--since", "1h"]).ok();
    assert!(table.contains("mainstay RUNNING serving on"), "{table}");
}

#[tokio::test]
async fn a_hundred_subscribers_receive_every_event_in_order() {
    let node = TestNode::start();
    let channel = node.connect().await;
    let mut streams = Vec::new();
    for _ in 0..100 {
        let mut client = MachineServiceClient::new(channel.clone());
        let request = EventsRequest::default();
        let mut stream = client.events(request).await.unwrap().into_inner();
        let hello = soon("the hello", stream.message()).await.unwrap();
        assert_eq!(hello, Some(Event::default()));
        streams.push(stream);
    }
    const EVENTS: usize = 5;
    let mut published = Vec::new();
    let mut others = streams.split_off(1);
    for _ in 0..EVENTS {
        // One after the other: pending signals of one kind become one.
        node.signal(rustix::process::Signal::HUP);
        let event = soon("an event", streams[0].message()).await.unwrap();
        published.push(event.unwrap().id);
    }
    assert!(published.is_sorted_by(|a, b| a < b), "{published:?}");
    for stream in &mut others {
        for id in &published {
            let event = soon("an event", stream.message()).await.unwrap();
            assert_eq!(event.unwrap().id, *id);
        }
    }
}
