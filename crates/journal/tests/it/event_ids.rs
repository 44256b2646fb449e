use mainstay_journal::{
    Delivery, EventError, EventId, EventRetention, EventStore, InvalidEventId, StartAt, Timestamp,
};
use proptest::prelude::*;

use crate::support::{kept, seqs};

proptest! {
    #[test]
    fn an_id_is_parsed_from_its_text(seq: u64, nanos: i64) {
        let id = EventId { seq, time: Timestamp::from_nanos(nanos) };
        let text = id.to_string();
        prop_assert_eq!(text.len(), 32);
        prop_assert_eq!(text.parse(), Ok(id));
    }
}

#[test]
fn other_text_is_no_id() {
    let id = EventId {
        seq: 10,
        time: Timestamp::from_nanos(11),
    }
    .to_string();
    assert_eq!(id, "000000000000000a000000000000000b");
    for text in [
        String::new(),
        id[1..].to_owned(),
        format!("{id}0"),
        id.to_uppercase(),
        id.replacen('0', "+", 1),
        id.replacen('0', "é", 1)[..32].to_owned(),
    ] {
        assert_eq!(text.parse::<EventId>(), Err(InvalidEventId), "{text}");
    }
}

#[test]
fn a_subscription_resumes_after_a_known_id_and_refuses_others() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    let ids: Vec<_> = (0..20)
        .map(|_| store.publish("kind", b"").unwrap().id)
        .collect();

    let refused = |store: &EventStore, id: EventId| matches!(store.subscribe(StartAt::After(id)), Err(EventError::UnknownId { id: named }) if named == id);
    let check = |store: &EventStore| {
        assert_eq!(
            seqs(&kept(store, StartAt::After(ids[14]))),
            [16, 17, 18, 19, 20]
        );
        assert_eq!(seqs(&kept(store, StartAt::After(ids[19]))), []);
        let time = Timestamp::from_nanos(ids[4].time.as_nanos() + 1);
        assert!(
            refused(store, EventId { seq: 5, time }),
            "same number, other time"
        );
        assert!(
            refused(store, EventId { seq: 21, time }),
            "beyond the newest"
        );
        assert!(
            refused(store, EventId { seq: 0, time }),
            "numbers begin with one"
        );
        assert!(refused(
            store,
            EventId {
                seq: u64::MAX,
                time
            }
        ));
    };
    check(&store);
    drop(store);
    // Now from disk instead of memory.
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    assert_eq!(store.last(), Some(ids[19]));
    check(&store);
}

#[test]
fn a_subscription_starts_at_every_kind_of_start() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    assert_eq!(store.last(), None);
    assert_eq!(kept(&store, StartAt::All), []);
    let ids: Vec<_> = (0..10)
        .map(|_| store.publish("kind", b"").unwrap().id)
        .collect();

    assert_eq!(
        seqs(&kept(&store, StartAt::All)),
        (1..=10).collect::<Vec<_>>()
    );
    assert_eq!(seqs(&kept(&store, StartAt::Last(3))), [8, 9, 10]);
    assert_eq!(seqs(&kept(&store, StartAt::Last(0))), []);
    assert_eq!(
        seqs(&kept(&store, StartAt::Last(u64::MAX))),
        (1..=10).collect::<Vec<_>>()
    );
    assert_eq!(seqs(&kept(&store, StartAt::Now)), []);
    let first_at = |time| ids.iter().find(|id| id.time >= time).map(|id| id.seq);
    let since = seqs(&kept(&store, StartAt::Since(ids[6].time)));
    assert_eq!(since.first().copied(), first_at(ids[6].time));
    assert_eq!(since.last(), Some(&10));
    let later = Timestamp::from_nanos(ids[9].time.as_nanos() + 1);
    assert_eq!(kept(&store, StartAt::Since(later)), []);
}

#[test]
fn sizes_are_bounded_and_the_largest_event_is_kept() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    let (kind, payload) = ("k".repeat(256), vec![7; 64 * 1024]);
    assert!(matches!(
        store.publish(&"k".repeat(257), b""),
        Err(EventError::KindTooLong { len: 257 })
    ));
    assert!(matches!(
        store.publish("k", &vec![0; 64 * 1024 + 1]),
        Err(EventError::PayloadTooLarge { len: 65_537 })
    ));
    let published = store.publish(&kind, &payload).unwrap();
    assert_eq!(published.id.seq, 1, "a refused event takes no number");
    drop(store);
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    assert_eq!(kept(&store, StartAt::All), [Delivery::Event(published)]);
}
