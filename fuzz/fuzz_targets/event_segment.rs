//! Event segments: whatever a file holds, the store opens, hands out only what is really in it
//! and in order, loses nothing silently, and goes on with new events.
#![no_main]

use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use mainstay_fuzz::{PlainEvent, Scratch, block_on, every_record, records_in_order, seal};
use mainstay_journal::{Delivery, Event, EventRetention, EventStore, StartAt};

const SEGMENT: u64 = 1;
/// Numbers from here on are taken for damage.
const END_OF_NUMBERS: u64 = 1 << 62;

fuzz_target!(|data: &[u8]| {
    let mut bytes = data.to_vec();
    seal(&mut bytes, SEGMENT);
    let scratch = Scratch::fresh();
    scratch.write(&format!("{SEGMENT:020}.seg"), &bytes);

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

/// All kept events, having checked that every number is either delivered or reported missed.
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
        "an event nobody wrote"
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
