use std::fs;
use std::path::{Path, PathBuf};

use mainstay_journal::{Delivery, Event, EventError, EventStore, StartAt};
use proptest::prelude::*;
use proptest::sample::Index;
use std::sync::Arc;

use crate::support::{kept, seqs, small_segments};

fn segments(dir: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    paths.sort();
    paths
}

fn publish(store: &EventStore, count: usize) -> Vec<Arc<Event>> {
    (0..count)
        .map(|n| {
            let payload: Vec<u8> = (0..=255).cycle().skip(n).take(n * 13 % 400).collect();
            store.publish(&format!("kind.{n}"), &payload).unwrap()
        })
        .collect()
}

#[test]
fn a_segment_truncated_at_any_byte_yields_a_prefix() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    let path = segments(dir.path()).pop().unwrap();
    let mut ends = Vec::new();
    let mut events = Vec::new();
    for n in 0..12 {
        events.push(store.publish("kind", &vec![n; usize::from(n) * 7]).unwrap());
        ends.push(fs::metadata(&path).unwrap().len());
    }
    drop(store);
    assert_eq!(segments(dir.path()).len(), 1);
    let bytes = fs::read(&path).unwrap();
    for cut in 0..=bytes.len() {
        fs::write(&path, &bytes[..cut]).unwrap();
        let whole = ends.iter().filter(|end| **end <= cut as u64).count();
        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        let expected: Vec<_> = events[..whole]
            .iter()
            .cloned()
            .map(Delivery::Event)
            .collect();
        assert_eq!(kept(&store, StartAt::All), expected, "cut at {cut}");
        // The number of a record that never became whole was never seen by anyone.
        let next = store.publish("next", b"").unwrap();
        assert_eq!(next.id.seq, whole as u64 + 1, "cut at {cut}");
        drop(store);
        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        assert_eq!(
            kept(&store, StartAt::All).last(),
            Some(&Delivery::Event(next))
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn flipped_bits_lose_one_event_and_change_none(segment: Index, byte: Index, flip in 1..=255_u8) {
        let dir = tempfile::tempdir().unwrap();
        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        let events = publish(&store, 60);
        drop(store);
        let paths = segments(dir.path());
        prop_assert!(paths.len() > 2);
        let path = segment.get(&paths);
        let mut bytes = fs::read(path).unwrap();
        *byte.get_mut(&mut bytes) ^= flip;
        fs::write(path, bytes).unwrap();

        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        let next = store.publish("next", b"").unwrap();
        let mut expected_seq = 1;
        let mut found = 0;
        for delivery in kept(&store, StartAt::All) {
            match delivery {
                Delivery::Missed { count } => expected_seq += count,
                Delivery::Event(event) => {
                    prop_assert_eq!(event.id.seq, expected_seq);
                    let seq = usize::try_from(expected_seq).unwrap();
                    let original = if event.id.seq == next.id.seq { &next } else { &events[seq - 1] };
                    prop_assert_eq!(&event, original);
                    found += usize::from(event.id.seq != next.id.seq);
                    expected_seq += 1;
                }
            }
        }
        // More numbers than that may be passed over, if it cannot be told how many events there
        // were at the end.
        prop_assert!(found + 1 >= events.len(), "only {} found", found);
        prop_assert_eq!(expected_seq, next.id.seq + 1);
    }

    #[test]
    fn any_bytes_in_a_segment_are_skipped(garbage: Vec<u8>, at: Index) {
        let dir = tempfile::tempdir().unwrap();
        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        let events = publish(&store, 30);
        drop(store);
        let path = at.get(&segments(dir.path())).clone();
        let mut bytes = fs::read(&path).unwrap();
        let start = at.index(bytes.len());
        bytes.splice(start..(start + garbage.len()).min(bytes.len()), garbage);
        fs::write(path, bytes).unwrap();
        let store = EventStore::open(dir.path(), small_segments()).unwrap();
        store.publish("next", b"").unwrap();
        let mut last = 0;
        for delivery in kept(&store, StartAt::All) {
            if let Delivery::Event(event) = delivery {
                prop_assert!(event.id.seq > last);
                last = event.id.seq;
                if let Some(original) = events.get(usize::try_from(last - 1).unwrap()) {
                    prop_assert!(&event == original || &*event.kind == "next");
                }
            }
        }
    }
}

#[test]
fn the_number_of_a_corrupt_newest_event_is_not_reused() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    publish(&store, 5);
    drop(store);
    let path = segments(dir.path()).pop().unwrap();
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    assert_eq!(store.publish("next", b"").unwrap().id.seq, 6);
    let deliveries = kept(&store, StartAt::All);
    assert_eq!(seqs(&deliveries), [1, 2, 3, 4, 6]);
    assert_eq!(deliveries[4], Delivery::Missed { count: 1 });
}

#[test]
fn a_record_inside_a_payload_is_never_delivered() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    publish(&store, 4);
    let path = segments(dir.path()).pop().unwrap();
    let before = fs::read(&path).unwrap();
    store.publish("carrier", &before).unwrap();
    publish(&store, 2);
    drop(store);
    let mut bytes = fs::read(&path).unwrap();
    bytes[before.len()] ^= 1;
    fs::write(&path, bytes).unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    assert_eq!(seqs(&kept(&store, StartAt::All)), [1, 2, 3, 4, 6, 7]);
}

#[test]
fn a_lost_segment_is_reported_as_missed() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    publish(&store, 60);
    drop(store);
    let paths = segments(dir.path());
    let first_of = |path: &PathBuf| {
        path.file_stem()
            .unwrap()
            .to_str()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    let lost = first_of(&paths[2]) - first_of(&paths[1]);
    fs::remove_file(&paths[1]).unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    let deliveries = kept(&store, StartAt::All);
    let missed: Vec<_> = deliveries
        .iter()
        .filter(|delivery| matches!(delivery, Delivery::Missed { .. }))
        .collect();
    assert_eq!(missed, [&Delivery::Missed { count: lost }]);
    assert_eq!(seqs(&deliveries).len() as u64 + lost, 60);
}

#[test]
fn unknown_files_are_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("notes.txt"), "mine").unwrap();
    fs::write(dir.path().join("1.seg"), "mine").unwrap();
    fs::write(dir.path().join("99999999999999999999.seg"), "mine").unwrap();
    fs::create_dir(dir.path().join("00000000000000000001.seg")).unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    let published = store.publish("kind", b"").unwrap();
    assert_eq!(seqs(&kept(&store, StartAt::All)), [published.id.seq]);
    assert_eq!(fs::read(dir.path().join("1.seg")).unwrap(), b"mine");
    assert_eq!(
        fs::read(dir.path().join("99999999999999999999.seg")).unwrap(),
        b"mine"
    );
}

#[test]
fn a_store_is_locked_by_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let store = EventStore::open(dir.path(), small_segments()).unwrap();
    assert!(matches!(
        EventStore::open(dir.path(), small_segments()),
        Err(EventError::Locked { .. })
    ));
    drop(store);
    EventStore::open(dir.path(), small_segments()).unwrap();
}

#[test]
fn a_path_that_cannot_be_a_directory_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(
        EventStore::open(&file, small_segments()),
        Err(EventError::Open { .. })
    ));
}
