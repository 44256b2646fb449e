use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use mainstay_journal::{
    EventError, EventStore, LogError, LogLimits, LogWriter, StartAt, Stream, Timestamp,
};

use crate::child::run_on_tiny_disk;
use crate::log_support::texts;
use crate::support::{kept, seqs, small_segments};

#[test]
fn a_full_disk_refuses_events_and_keeps_published_ones() {
    let dir = tempfile::tempdir().unwrap();
    run_on_tiny_disk("events-full-disk", dir.path());
    assert_eq!(
        fs::read_dir(dir.path()).unwrap().count(),
        0,
        "the mount was the child's alone"
    );
}

#[test]
fn a_read_only_disk_is_an_error_on_open() {
    let dir = tempfile::tempdir().unwrap();
    run_on_tiny_disk("events-read-only", dir.path());
}

#[test]
fn a_full_disk_refuses_lines_and_keeps_written_ones() {
    let dir = tempfile::tempdir().unwrap();
    run_on_tiny_disk("logs-full-disk", dir.path());
}

pub(crate) fn events(disk: &Path) {
    let dir = disk.join("events");
    fs::write(disk.join("ballast"), vec![0; 64 * 1024]).unwrap();
    let store = EventStore::open(&dir, small_segments()).unwrap();
    let mut published = Vec::new();
    let mut fill = |store: &EventStore| {
        for len in (1..).map(|n| n * 97 % 3000) {
            match store.publish("test", &vec![1; len]) {
                Ok(event) => published.push(event.id.seq),
                Err(EventError::Write { source, .. }) => {
                    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
        published.len()
    };
    let full = fill(&store);
    assert!(full > 20);
    assert!(store.publish("test", &[1; 60_000]).is_err(), "still full");
    fs::remove_file(disk.join("ballast")).unwrap();
    let more = fill(&store);
    assert!(more > full, "there is room again");
    assert_eq!(
        published,
        (1..=more as u64).collect::<Vec<_>>(),
        "no number is used up"
    );
    assert_eq!(seqs(&kept(&store, StartAt::All)), published);
    drop(store);
    let store = EventStore::open(&dir, small_segments()).unwrap();
    let deliveries = kept(&store, StartAt::All);
    assert_eq!(seqs(&deliveries), published);
    assert_eq!(
        deliveries.len(),
        published.len(),
        "nothing counts as missed"
    );
}

pub(crate) fn events_read_only(disk: &Path) {
    let dir = disk.join("events");
    let store = EventStore::open(&dir, small_segments()).unwrap();
    store.publish("test", b"").unwrap();
    drop(store);
    let remounted = Command::new("mount")
        .args(["-o", "remount,ro"])
        .arg(disk)
        .status()
        .unwrap()
        .success();
    assert!(remounted);
    match EventStore::open(&dir, small_segments()) {
        Err(EventError::Open { path, source }) => {
            assert_eq!(
                (path, source.kind()),
                (dir, io::ErrorKind::ReadOnlyFilesystem)
            );
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn logs(disk: &Path) {
    fs::write(disk.join("ballast"), vec![0; 64 * 1024]).unwrap();
    let mut writer = LogWriter::open(disk, "app", LogLimits::default()).unwrap();
    let mut written = Vec::new();
    let mut fill = |writer: &mut LogWriter| {
        for n in 1.. {
            let line = format!("{n} {}", "x".repeat(n * 97 % 40_000)).into_bytes();
            match writer.append(Timestamp::now(), Stream::Stdout, &line) {
                Ok(()) => written.push(line),
                Err(LogError::Write { source, .. }) => {
                    assert_eq!(source.kind(), io::ErrorKind::StorageFull);
                    return written.len();
                }
                Err(other) => panic!("{other}"),
            }
        }
        unreachable!()
    };
    let full = fill(&mut writer);
    assert!(full > 2);
    fs::remove_file(disk.join("ballast")).unwrap();
    assert!(fill(&mut writer) > full, "there is room again");
    let read = texts(disk, "app");
    // A refused line may be there in part, as a line of its own.
    let mut expected = written.iter().peekable();
    for line in &read {
        expected.next_if(|written| *written == line);
    }
    assert_eq!(
        expected.next(),
        None,
        "each line written is there, whole and in order"
    );
    assert!(
        read.len() <= written.len() + 2,
        "no more than one remnant for each refusal"
    );
}
