//! `Events`: the events of the journal, on the wire.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use mainstay_api::common::Metadata;
use mainstay_api::event::KIND_PREFIX;
use mainstay_api::machine::{Event, EventsRequest};
use mainstay_journal::Timestamp;
use mainstay_journal::{
    Delivery, Event as JournalEvent, EventError, EventId, EventStore, StartAt, Subscription,
};
use prost_types::Any;
use tonic::Status;

use crate::actor_tag;
use crate::rpc::{Answers, status};
use crate::text::shorten;

/// Events read from the journal at once.
const BATCH: usize = 128;
/// Longer actor ids are refused: each stream keeps the one it selects.
const MAX_ACTOR_BYTES: usize = 256;

pub(super) async fn stream(
    store: &EventStore,
    request: &EventsRequest,
) -> Result<Answers<Event>, Status> {
    let start = start_at(request)?;
    if request.with_actor_id.len() > MAX_ACTOR_BYTES {
        return Err(Status::invalid_argument(format!(
            "with_actor_id is longer than {MAX_ACTOR_BYTES} bytes"
        )));
    }
    let store = store.clone();
    // Finding the start may read old segments from disk.
    let subscription = tokio::task::spawn_blocking(move || store.subscribe(start))
        .await
        .map_err(|_| Status::internal("the events journal failed; its log says why"))?
        .map_err(|error| status::of_events(&error))?;

    // Clients wait for one empty event before they do what they want to see the events of.
    let hello = stream::once(std::future::ready(Ok(Event::default())));
    let until_now = request.until_now;
    let actor = request.with_actor_id.clone();
    let rest = stream::unfold(Some(subscription), move |subscription| async move {
        let mut subscription = subscription?;
        let batch = next(&mut subscription, until_now).await.transpose()?;
        Some(match batch {
            Ok(batch) => {
                let events: Vec<_> = batch
                    .into_iter()
                    .map(|item| Ok(on_the_wire(&item)))
                    .collect();
                (events, Some(subscription))
            }
            Err(error) => (vec![Err(status::of_events(&error))], None),
        })
    });
    let rest = rest.flat_map(stream::iter).filter(move |event| {
        std::future::ready(
            event
                .as_ref()
                .map_or(true, |event| is_wanted(event, &actor)),
        )
    });
    Ok(Box::pin(hello.chain(rest)))
}

async fn next(
    subscription: &mut Subscription,
    until_now: bool,
) -> Result<Option<Vec<Delivery>>, EventError> {
    if until_now {
        subscription.next_kept(BATCH).await
    } else {
        subscription.next_batch(BATCH).await.map(Some)
    }
}

/// An event without data reports an error, which every reader has to know.
fn is_wanted(event: &Event, actor: &str) -> bool {
    actor.is_empty() || event.data.is_none() || event.actor_id == actor
}

fn start_at(request: &EventsRequest) -> Result<StartAt, Status> {
    let EventsRequest {
        tail_events,
        tail_id,
        tail_seconds,
        ..
    } = request;
    let asked = [*tail_events != 0, !tail_id.is_empty(), *tail_seconds != 0];
    match asked {
        [false, false, false] => Ok(StartAt::Now),
        [true, false, false] => Ok(u64::try_from(*tail_events).map_or(StartAt::All, StartAt::Last)),
        [false, true, false] => {
            let id: EventId = tail_id.parse().map_err(|_| {
                Status::invalid_argument(format!(
                    "tail_id {:?} is not an event id; ids are the 32 hex digits that \
                     come with each event",
                    shorten(tail_id)
                ))
            })?;
            Ok(StartAt::After(id))
        }
        [false, false, true] => {
            let seconds = u64::try_from(*tail_seconds).map_err(|_| {
                Status::invalid_argument(
                    "tail_seconds is negative; it counts seconds into the past",
                )
            })?;
            Ok(StartAt::Since(ago(Duration::from_secs(seconds))))
        }
        _ => Err(Status::invalid_argument(
            "tail_events, tail_id and tail_seconds exclude each other; set one of them",
        )),
    }
}

fn ago(age: Duration) -> Timestamp {
    let nanos = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
    Timestamp::from_nanos(Timestamp::now().as_nanos().saturating_sub(nanos))
}

fn on_the_wire(item: &Delivery) -> Event {
    match item {
        Delivery::Event(event) => wire_event(event),
        Delivery::Missed { count } => Event {
            metadata: Some(Metadata {
                error: format!("{count} events were removed before they could be sent"),
                ..Metadata::default()
            }),
            ..Event::default()
        },
    }
}

fn wire_event(event: &JournalEvent) -> Event {
    let (payload, actor_id) = actor_tag::split(&event.payload);
    Event {
        metadata: None,
        data: Some(Any {
            type_url: format!("{KIND_PREFIX}{}", event.kind),
            value: payload.to_vec(),
        }),
        id: event.id.to_string(),
        actor_id,
    }
}
