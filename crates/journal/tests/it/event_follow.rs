use std::thread;

use mainstay_journal::{Delivery, EventRetention, EventStore, StartAt, Subscription, Timestamp};

use crate::support::{block_on, seqs};

async fn read_to(subscription: &mut Subscription, last: u64) -> Vec<Delivery> {
    let mut all = Vec::new();
    while seqs(&all).last() != Some(&last) {
        all.extend(subscription.next_batch(64).await.unwrap());
    }
    all
}

#[test]
fn all_subscribers_see_many_publishers_in_one_order() {
    const PUBLISHERS: u64 = 4;
    const EACH: u64 = 500;
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    let subscriptions: Vec<_> = (0..3)
        .map(|_| store.subscribe(StartAt::Now).unwrap())
        .collect();
    let publishers: Vec<_> = (0..PUBLISHERS)
        .map(|publisher| {
            let store = store.clone();
            thread::spawn(move || {
                for n in 0..EACH {
                    store
                        .publish("test", format!("{publisher} {n}").as_bytes())
                        .unwrap();
                }
            })
        })
        .collect();
    let followed: Vec<_> = subscriptions
        .into_iter()
        .map(|mut subscription| {
            thread::spawn(move || block_on(read_to(&mut subscription, PUBLISHERS * EACH)))
        })
        .collect();
    publishers
        .into_iter()
        .for_each(|publisher| publisher.join().unwrap());
    let seen: Vec<_> = followed
        .into_iter()
        .map(|reader| reader.join().unwrap())
        .collect();
    assert_eq!(seqs(&seen[0]), (1..=PUBLISHERS * EACH).collect::<Vec<_>>());
    assert!(seen.iter().all(|other| other == &seen[0]));
    for publisher in 0..PUBLISHERS {
        let prefix = format!("{publisher} ");
        let own: Vec<String> = seen[0]
            .iter()
            .filter_map(|delivery| match delivery {
                Delivery::Event(event) => Some(String::from_utf8(event.payload.to_vec()).unwrap()),
                Delivery::Missed { .. } => None,
            })
            .filter(|payload| payload.starts_with(&prefix))
            .collect();
        let expected: Vec<_> = (0..EACH).map(|n| format!("{publisher} {n}")).collect();
        assert_eq!(own, expected, "each publisher's own order is kept");
    }
}

#[test]
fn live_events_follow_history_without_a_gap() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    for _ in 0..10 {
        store.publish("before", b"").unwrap();
    }
    let mut subscription = store.subscribe(StartAt::Last(4)).unwrap();
    store.publish("after", b"").unwrap();
    block_on(async {
        let history = subscription.next_kept(100).await.unwrap().unwrap();
        assert_eq!(seqs(&history), [7, 8, 9, 10]);
        assert_eq!(subscription.next_kept(100).await.unwrap(), None);
        assert_eq!(seqs(&subscription.next_batch(100).await.unwrap()), [11]);
    });
}

#[test]
fn a_cancelled_wait_loses_no_event() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    block_on(async {
        let mut subscription = store.subscribe(StartAt::Now).unwrap();
        for seq in 1..=50 {
            tokio::select! {
                biased;
                batch = subscription.next_batch(10) => panic!("nothing was published: {batch:?}"),
                () = tokio::task::yield_now() => {}
            }
            store.publish("test", b"").unwrap();
            assert_eq!(seqs(&subscription.next_batch(10).await.unwrap()), [seq]);
        }
    });
}

#[test]
fn a_start_in_the_future_skips_events_until_then() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    let early = store.publish("early", b"").unwrap();
    let just_after = Timestamp::from_nanos(early.id.time.as_nanos() + 1);
    let mut subscription = store.subscribe(StartAt::Since(just_after)).unwrap();
    let mut future = store
        .subscribe(StartAt::Since(Timestamp::from_nanos(
            early.id.time.as_nanos() + i64::MAX / 4,
        )))
        .unwrap();
    let late = loop {
        let event = store.publish("late", b"").unwrap();
        if event.id.time >= just_after {
            break event;
        }
    };
    block_on(async {
        assert_eq!(
            subscription.next_batch(10).await.unwrap(),
            [Delivery::Event(late)]
        );
        tokio::select! {
            biased;
            batch = future.next_batch(10) => panic!("too early: {batch:?}"),
            () = tokio::task::yield_now() => {}
        }
    });
}

#[test]
fn subscribers_behind_the_ring_read_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), EventRetention::default()).unwrap();
    let mut slow = store.subscribe(StartAt::Now).unwrap();
    let published: Vec<_> = (0..3000_u32)
        .map(|n| Delivery::Event(store.publish("test", &n.to_le_bytes()).unwrap()))
        .collect();
    store.sync().unwrap();
    assert_eq!(block_on(read_to(&mut slow, 3000)), published);
}
