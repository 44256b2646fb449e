use std::path::Path;
use std::time::Duration;

use mainstay_journal::{Delivery, EventRetention, EventStore, StartAt};

use crate::support::{block_on, kept, read_kept, seqs};

fn bytes_in(dir: &Path) -> u64 {
    dir.read_dir()
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum()
}

fn fill(store: &EventStore, count: usize) {
    for _ in 0..count {
        store.publish("fill", &[0; 200]).unwrap();
    }
}

#[test]
fn events_within_the_age_are_kept_up_to_the_size() {
    let dir = tempfile::tempdir().unwrap();
    let retention = EventRetention {
        min_events: 10,
        max_bytes: 65_536,
        ..Default::default()
    };
    let store = EventStore::open(dir.path(), retention).unwrap();
    fill(&store, 2000);
    let bytes = bytes_in(dir.path());
    assert!((32_768..=70_000).contains(&bytes), "{bytes} bytes kept");
    let seqs = seqs(&kept(&store, StartAt::All));
    assert_eq!(seqs.last(), Some(&2000));
    assert_eq!(seqs.len() as u64, 2001 - seqs[0]);
}

#[test]
fn the_minimum_number_is_kept_whatever_the_size_and_age() {
    let dir = tempfile::tempdir().unwrap();
    let retention = EventRetention {
        min_events: 500,
        min_age: Duration::ZERO,
        max_bytes: 8192,
    };
    let store = EventStore::open(dir.path(), retention).unwrap();
    fill(&store, 2000);
    let count = kept(&store, StartAt::All).len();
    assert!((500..600).contains(&count), "{count} events kept");
}

#[test]
fn old_events_are_deleted_when_enough_newer_ones_exist() {
    let dir = tempfile::tempdir().unwrap();
    // Segments of 64 KiB, so size alone would keep everything.
    let day = EventRetention {
        min_events: 10,
        max_bytes: 1 << 20,
        ..Default::default()
    };
    let store = EventStore::open(dir.path(), day).unwrap();
    fill(&store, 2000);
    assert_eq!(kept(&store, StartAt::All).len(), 2000);
    store.set_retention(EventRetention {
        min_age: Duration::ZERO,
        ..day
    });
    let left = seqs(&kept(&store, StartAt::All));
    assert!(
        (10..500).contains(&left.len()),
        "{} events kept",
        left.len()
    );
    assert_eq!(left.last(), Some(&2000));
    drop(store);
    let store = EventStore::open(dir.path(), day).unwrap();
    assert_eq!(
        seqs(&kept(&store, StartAt::All)),
        left,
        "what is gone stays gone"
    );
}

#[test]
fn a_subscriber_slower_than_retention_gets_the_missed_count() {
    let dir = tempfile::tempdir().unwrap();
    let retention = EventRetention {
        min_events: 10,
        max_bytes: 65_536,
        ..Default::default()
    };
    let store = EventStore::open(dir.path(), retention).unwrap();
    let first = store.publish("first", b"").unwrap();
    let mut slow = store.subscribe(StartAt::All).unwrap();
    let mut reading = store.subscribe(StartAt::All).unwrap();
    fill(&store, 20);
    block_on(async {
        assert_eq!(seqs(&reading.next_batch(5).await.unwrap()), [1, 2, 3, 4, 5]);
        fill(&store, 2000);
        let oldest = seqs(&read_kept(&store, StartAt::All).await)[0];
        assert!(oldest > 21);
        let batch = slow.next_batch(1).await.unwrap();
        assert_eq!(batch[0], Delivery::Missed { count: oldest - 1 });
        assert_eq!(seqs(&batch), [oldest]);
        let batch = reading.next_batch(1).await.unwrap();
        assert_eq!(batch[0], Delivery::Missed { count: oldest - 6 });
        let mut resumed = store.subscribe(StartAt::After(first.id)).unwrap();
        let batch = resumed.next_kept(1).await.unwrap().unwrap();
        assert_eq!(batch[0], Delivery::Missed { count: oldest - 2 });
        assert_eq!(
            seqs(&slow.next_batch(1).await.unwrap()),
            [oldest + 1],
            "told only once"
        );
    });
}
