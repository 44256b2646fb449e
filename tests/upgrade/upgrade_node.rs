//! A node that is upgraded, and what tests ask of it.

use mainstay_api::event;
use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{
    EventsRequest, RollbackRequest, SequenceEvent, ServiceStateEvent, UpgradeRequest,
    sequence_event,
};
use mainstay_api::mainstay::Slots;
use mainstay_api::mainstay::node_service_client::NodeServiceClient;
use mainstay_testkit::{TestNode, soon};
use tonic::{Code, Status};

/// Starts an upgrade with the image at a path of the node. Returns its actor id.
pub(super) async fn start_upgrade(node: &TestNode, image: &str) -> Result<String, Status> {
    start(node, image, |_| {}).await
}

pub(super) async fn start(
    node: &TestNode,
    image: &str,
    change: impl FnOnce(&mut UpgradeRequest),
) -> Result<String, Status> {
    let mut request = UpgradeRequest {
        image: image.to_owned(),
        preserve: true,
        ..UpgradeRequest::default()
    };
    change(&mut request);
    let mut machine = MachineServiceClient::new(node.connect_locally().await);
    let mut answer = machine.upgrade(request).await?.into_inner();
    let answer = answer.messages.remove(0);
    assert_eq!(answer.ack, "Upgrade request received");
    Ok(answer.actor_id)
}

pub(super) async fn start_rollback(node: &TestNode) -> Result<String, Status> {
    let mut machine = MachineServiceClient::new(node.connect_locally().await);
    let mut answer = machine.rollback(RollbackRequest {}).await?.into_inner();
    Ok(answer.messages.remove(0).actor_id)
}

/// Upgrades and waits for the end.
pub(super) async fn upgrade(node: &TestNode, image: &str) -> Result<(), String> {
    let actor = start_upgrade(node, image).await.unwrap();
    end_of(node, &actor).await
}

pub(super) async fn roll_back(node: &TestNode) -> Result<(), String> {
    let actor = start_rollback(node).await.unwrap();
    end_of(node, &actor).await
}

/// Waits for the end of a sequence, over the restarts in it.
pub(super) async fn end_of(node: &TestNode, actor: &str) -> Result<(), String> {
    soon("the end of the sequence", async {
        loop {
            match follow(node, actor).await {
                Ok(end) => return end,
                // The daemon that answered is being replaced.
                Err(status) => assert!(is_lost(&status), "{status}"),
            }
        }
    })
    .await
}

/// Waits until the daemon has published this message about itself, over restarts.
pub(super) async fn until_published(node: &TestNode, message: &str) {
    soon(message, async {
        while !published(node, message).await.unwrap_or(false) {}
    })
    .await;
}

async fn published(node: &TestNode, message: &str) -> Result<bool, Status> {
    let channel = mainstay_testkit::connect_unix(&node.socket()).await;
    let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = EventsRequest {
        tail_events: -1,
        ..EventsRequest::default()
    };
    let mut events = MachineServiceClient::new(channel)
        .events(request)
        .await?
        .into_inner();
    while let Some(event) = events.message().await? {
        let state = event
            .data
            .map(|data| event::unpack::<ServiceStateEvent>(&data));
        if matches!(state, Some(Ok(state)) if state.message.contains(message)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_lost(status: &Status) -> bool {
    matches!(
        status.code(),
        Code::Unavailable | Code::Cancelled | Code::Unknown | Code::Aborted
    )
}

/// Waits for so many events of a sequence, or its end. Returns the last one's name.
pub(super) async fn events_of(node: &TestNode, actor: &str, count: usize) -> String {
    let mut machine = MachineServiceClient::new(node.connect_locally().await);
    let request = EventsRequest {
        tail_events: -1,
        with_actor_id: actor.to_owned(),
        ..EventsRequest::default()
    };
    let mut last = format!("{count}: ");
    let Ok(events) = machine.events(request).await else {
        return last;
    };
    let mut events = events.into_inner();
    let mut seen = 0;
    // The stream ends when the daemon is replaced.
    while let Ok(Some(event)) = soon("an event", events.message()).await {
        let Some(data) = event.data else { continue };
        seen += 1;
        let text: String = data.value.iter().map(|byte| *byte as char).collect();
        last = format!("{count}: {seen} {} {text:?}", data.type_url);
        if seen == count {
            break;
        }
    }
    last
}

async fn follow(node: &TestNode, actor: &str) -> Result<Result<(), String>, Status> {
    let channel = mainstay_testkit::connect_unix(&node.socket()).await;
    let channel = channel.map_err(|error| Status::unavailable(error.to_string()))?;
    let mut machine = MachineServiceClient::new(channel);
    let request = EventsRequest {
        tail_events: -1,
        with_actor_id: actor.to_owned(),
        ..EventsRequest::default()
    };
    let mut events = machine.events(request).await?.into_inner();
    while let Some(event) = events.message().await? {
        let Some(Ok(event)) = event.data.map(|data| event::unpack::<SequenceEvent>(&data)) else {
            continue;
        };
        match event.action() {
            sequence_event::Action::Start => {}
            sequence_event::Action::Stop => return Ok(Ok(())),
            sequence_event::Action::Noop => {
                return Ok(Err(event.error.unwrap_or_default().message));
            }
        }
    }
    Err(Status::unavailable("the stream ended"))
}

/// The version that the node reports, without the leading `v`.
pub(super) async fn running_version(node: &TestNode) -> String {
    let mut machine = MachineServiceClient::new(node.connect_locally().await);
    let mut answer = machine.version(()).await.unwrap().into_inner();
    let version = answer.messages.remove(0).version.unwrap();
    version.tag.strip_prefix('v').unwrap().to_owned()
}

pub(super) async fn slots(node: &TestNode) -> Slots {
    let mut node = NodeServiceClient::new(node.connect_locally().await);
    node.slots(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0)
}

/// Asserts that this version runs, in this slot, and that no trial is left.
pub(super) async fn assert_runs(node: &TestNode, version: &str, slot: &str) {
    assert_eq!(running_version(node).await, version);
    let slots = slots(node).await;
    assert_eq!(
        (slots.current.as_str(), slots.trial.as_str()),
        (slot, ""),
        "{slots:?}"
    );
    let incoming = node.state().join("slots/incoming");
    let left = std::fs::read_dir(incoming).map_or(0, Iterator::count);
    assert_eq!(left, 0, "nothing is left of what was received");
}
