//! The format version in the header of a segment.

use std::fs;
use std::path::Path;

use mainstay_journal::{EventError, EventStore, StartAt};

use crate::fixtures::{copy, describe, published};
use crate::support::{kept, seqs, small_segments};

const MARKER: &[u8] = b"\xE7evt";
const HEADER_KIND: &[u8] = b"mainstay.segment";
/// Marker, length, checksum, number, time and length of the kind.
const BEFORE_KIND: usize = 30;
const HEADER_BYTES: usize = BEFORE_KIND + HEADER_KIND.len() + 4;

fn version_of(segment: &Path) -> Option<u32> {
    let bytes = fs::read(segment).unwrap();
    let kind_end = BEFORE_KIND + HEADER_KIND.len();
    let is_header = bytes.starts_with(MARKER)
        && bytes[12..20] == [0; 8]
        && &bytes[BEFORE_KIND..kind_end] == HEADER_KIND;
    let version = bytes[kind_end..].first_chunk().filter(|_| is_header)?;
    Some(u32::from_le_bytes(*version))
}

#[test]
fn every_new_segment_begins_with_its_version() {
    let directory = tempfile::tempdir().unwrap();
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    for n in 0..10 {
        store.publish("kind", &vec![n; 1000]).unwrap();
    }
    let mut segments = 0;
    for entry in fs::read_dir(directory.path()).unwrap() {
        assert_eq!(version_of(&entry.unwrap().path()), Some(1));
        segments += 1;
    }
    assert_eq!(segments, 4);
    let numbers: Vec<u64> = (1..=10).collect();
    assert_eq!(seqs(&kept(&store, StartAt::All)), numbers);
    drop(store);
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    let deliveries = kept(&store, StartAt::All);
    assert_eq!(seqs(&deliveries), numbers);
    assert_eq!(deliveries.len(), 10, "a header is never counted as missed");
}

#[test]
fn a_segment_is_empty_before_its_first_event() {
    let directory = tempfile::tempdir().unwrap();
    drop(EventStore::open(directory.path(), small_segments()).unwrap());
    let segment = directory.path().join("00000000000000000001.seg");
    assert_eq!(fs::read(segment).unwrap(), b"");
}

#[test]
fn a_header_without_events_costs_no_number() {
    let directory = tempfile::tempdir().unwrap();
    let segment = directory.path().join("00000000000000000001.seg");
    let open = || EventStore::open(directory.path(), small_segments()).unwrap();
    open().publish("first", b"").unwrap();
    let bytes = fs::read(&segment).unwrap();
    for torn in [HEADER_BYTES, HEADER_BYTES - 1, HEADER_BYTES + 7] {
        fs::write(&segment, &bytes[..torn]).unwrap();
        let event = open().publish("second", b"").unwrap();
        assert_eq!(event.id.seq, 1, "cut after {torn} bytes");
        assert_eq!(version_of(&segment), Some(1));
    }
}

#[test]
fn version_1_is_read_as_it_was_published() {
    let directory = copy("1/events");
    let segment = directory.path().join("00000000000000000001.seg");
    assert_eq!(version_of(&segment), Some(1));
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    assert_eq!(describe(&kept(&store, StartAt::All)), published("1"));
}

#[test]
fn a_segment_of_a_newer_version_is_refused_and_no_file_is_changed() {
    let directory = copy("2/events");
    let contents = || {
        let mut files: Vec<_> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .map(|path| (path.clone(), fs::read(path).unwrap()))
            .collect();
        files.sort();
        files
    };
    let before = contents();
    assert_eq!(before.len(), 2);
    let error = EventStore::open(directory.path(), small_segments()).unwrap_err();
    let EventError::Newer {
        path,
        found: 2,
        supported: 1,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert!(path.ends_with("00000000000000000003.seg"), "{path:?}");
    let text = error.to_string();
    assert!(
        text.ends_with(
            "has format version 2, this build reads up to 1; upgrade mainstay or remove the \
             segment"
        ),
        "{text}"
    );
    assert_eq!(contents(), before);
}

#[test]
fn a_corrupt_header_costs_no_event() {
    let directory = copy("1/events");
    let segment = directory.path().join("00000000000000000001.seg");
    let mut bytes = fs::read(&segment).unwrap();
    bytes[HEADER_BYTES - 1] ^= 0x80;
    fs::write(&segment, bytes).unwrap();
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    assert_eq!(describe(&kept(&store, StartAt::All)), published("1"));
}
