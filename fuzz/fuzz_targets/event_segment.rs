//! Event segments: the store opens any file unless its header has a newer version, delivers only
//! the events in it and in order, loses nothing silently, and continues with new events.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use mainstay_fuzz::{PlainEvent, Scratch, block_on, every_record, header, records_in_order, seal};
use mainstay_journal::{Delivery, Event, EventError, EventRetention, EventStore, StartAt};

const SEGMENT: u64 = 1;
/// The newest format version.
const FORMAT_VERSION: u32 = 1;
/// Numbers from here on count as corruption.
const END_OF_NUMBERS: u64 = 1 << 62;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    seal(&mut bytes, SEGMENT);
    let scratch = Scratch::fresh();
    scratch.write(&format!("{SEGMENT:020}.seg"), &bytes);

    if header(&bytes, SEGMENT).is_some_and(|(version, _)| version > FORMAT_VERSION) {
        let refused = EventStore::open(scratch.path(), EventRetention::default());
        assert!(
            matches!(refused, Err(EventError::Newer { .. })),
            "{refused:?}"
        );
        return;
    }
    let store = open(&scratch);
    let found = kept(&store, StartAt::All, 1000);
    check_contents(&found, &bytes);
    assert_eq!(store.last(), found.last().map(|event| event.id));
    assert_eq!(
        kept(&store, StartAt::All, 2),
        found,
        "read in small batches"
    );
    check_beginnings(&store, &found);

    let mut live = store.subscribe(StartAt::Now).expect("now is always there");
    let published = store.publish("fuzz", data.get(..9).unwrap_or(data));
    let published = published.expect("publishing works after any damage");
    assert!(found.iter().all(|event| event.id.seq < published.id.seq));
    let delivered = block_on(live.next_batch(10)).expect("a new event can be delivered");
    assert_eq!(delivered, [Delivery::Event(Arc::clone(&published))]);
    let mut expected = found;
    expected.push(published);
    assert_eq!(
        kept(&store, StartAt::All, 1000),
        expected,
        "after publishing"
    );
    drop((live, store));
    assert_eq!(
        kept(&open(&scratch), StartAt::All, 1000),
        expected,
        "after a restart"
    );
});

fn open(scratch: &Scratch) -> EventStore {
    EventStore::open(scratch.path(), EventRetention::default()).expect("no contents refuse opening")
}

/// Returns all kept events after checking that every number is either delivered or missed.
fn kept(store: &EventStore, from: StartAt, batch: usize) -> Vec<Arc<Event>> {
    let mut subscription = store.subscribe(from).expect("the beginning is known");
    let mut events: Vec<Arc<Event>> = Vec::new();
    let mut next = None;
    while let Some(deliveries) =
        block_on(subscription.next_kept(batch)).expect("no contents fail a read")
    {
        assert!(!deliveries.is_empty());
        for delivery in deliveries {
            match delivery {
                Delivery::Missed { count } => {
                    assert!(count > 0);
                    next = Some(next.unwrap_or(SEGMENT) + count);
                }
                Delivery::Event(event) => {
                    if from == StartAt::All {
                        assert_eq!(event.id.seq, next.unwrap_or(SEGMENT));
                    }
                    next = Some(event.id.seq + 1);
                    events.push(event);
                }
            }
        }
    }
    events
}

fn check_contents(found: &[Arc<Event>], bytes: &[u8]) {
    let found: Vec<_> = found.iter().map(|event| plain(event)).collect();
    let there = every_record(bytes, SEGMENT);
    assert!(
        found.iter().all(|event| there.contains(event)),
        "an event that is not in the file"
    );
    if let Some(all) = records_in_order(bytes, SEGMENT)
        && all.iter().all(|event| event.seq < END_OF_NUMBERS)
    {
        assert_eq!(found, all, "an undamaged segment is read whole");
    }
}

fn check_beginnings(store: &EventStore, found: &[Arc<Event>]) {
    let Some(middle) = found.get(found.len() / 2) else {
        return;
    };
    let after = kept(store, StartAt::After(middle.id), 1000);
    assert_eq!(after, found[found.len() / 2 + 1..]);
    let first = found
        .iter()
        .position(|event| event.id.time >= middle.id.time);
    let since = kept(store, StartAt::Since(middle.id.time), 1000);
    assert_eq!(since, found[first.unwrap_or(found.len())..]);
}

fn plain(event: &Event) -> PlainEvent {
    PlainEvent {
        seq: event.id.seq,
        nanos: event.id.time.as_nanos(),
        kind: event.kind.to_string(),
        payload: event.payload.to_vec(),
    }
}
