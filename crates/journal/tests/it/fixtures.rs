//! Files that earlier builds wrote: they must stay readable.
//!
//! `fixtures/unversioned` comes from the last build whose segments had no header; `events.txt`
//! lists what it published, one `<id> <kind> <payload in hex>` a line.

use std::fs;
use std::path::{Path, PathBuf};

use mainstay_journal::{
    Delivery, Event, EventStore, LogLimits, LogQuery, LogStore, LogWriter, StartAt, Stream,
    Timestamp,
};

use crate::log_support::{read, texts};
use crate::support::{kept, small_segments};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/it/fixtures")
        .join(name)
}

/// Copies the files of a fixture, because stores write into their directories.
pub(crate) fn copy(name: &str) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for entry in fs::read_dir(fixture(name)).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
    }
    copy
}

/// One line for each delivery, as in `events.txt`.
pub(crate) fn describe(deliveries: &[Delivery]) -> String {
    let line = |delivery: &Delivery| match delivery {
        Delivery::Event(event) => describe_event(event),
        Delivery::Missed { count } => format!("missed {count}\n"),
    };
    deliveries.iter().map(line).collect()
}

fn describe_event(event: &Event) -> String {
    let payload: String = event.payload.iter().map(|b| format!("{b:02x}")).collect();
    format!("{} {} {payload}\n", event.id, event.kind)
}

pub(crate) fn published(name: &str) -> String {
    fs::read_to_string(fixture(name).join("events.txt")).unwrap()
}

#[test]
fn events_of_unversioned_segments_are_read_as_they_were_published() {
    let directory = copy("unversioned/events");
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    assert_eq!(
        describe(&kept(&store, StartAt::All)),
        published("unversioned")
    );
}

#[test]
fn an_unversioned_segment_is_appended_to_and_keeps_its_events() {
    let directory = copy("unversioned/events");
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    let event = store.publish("new.build", b"payload").unwrap();
    let expected = published("unversioned") + &describe_event(&event);
    assert_eq!(describe(&kept(&store, StartAt::All)), expected);
    drop(store);
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    assert_eq!(describe(&kept(&store, StartAt::All)), expected);
}

#[test]
fn a_torn_unversioned_segment_loses_only_its_last_event() {
    let directory = copy("unversioned/events");
    let newest = directory.path().join("00000000000000000026.seg");
    let bytes = fs::read(&newest).unwrap();
    fs::write(&newest, &bytes[..bytes.len() - 1]).unwrap();
    let store = EventStore::open(directory.path(), small_segments()).unwrap();
    let all = published("unversioned");
    let (without_last, _) = all.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(
        describe(&kept(&store, StartAt::All)).trim_end(),
        without_last
    );
}

#[test]
fn logs_of_earlier_builds_are_read_with_their_times_and_streams() {
    let root = fixture("unversioned/logs");
    let store = LogStore::open(&root).unwrap();
    assert_eq!(store.sources().unwrap(), ["long", "web"]);

    let lines = read(&root, "web", LogQuery::default());
    assert_eq!(lines.len(), 27);
    let first = Timestamp::from_nanos(1_790_000_000_000_000_000);
    assert_eq!(lines[0].time, Some(first));
    assert!(lines.iter().all(|line| line.time.is_some()));
    let errors = lines.iter().filter(|line| line.stream == Stream::Stderr);
    assert_eq!(errors.count(), 7);

    let texts: Vec<String> = texts(&root, "web")
        .iter()
        .map(|text| String::from_utf8_lossy(text).into_owned())
        .collect();
    assert_eq!(texts[0], "line 0 of the first writer");
    assert_eq!(
        texts[12..18],
        [
            "",
            "two",
            "lines, ünïcode",
            "not UTF-8: \u{fffd}\u{fffd}\0 end",
            "begun and ended here",
            "torn by the death of the writer",
        ]
    );
    assert_eq!(texts.last().unwrap(), "line 25 of the second writer");

    let tail = LogQuery {
        tail: Some(2),
        ..LogQuery::default()
    };
    assert_eq!(read(&root, "web", tail), lines[25..]);
    assert_eq!(
        crate::log_support::texts(&root, "long"),
        [vec![b'x'; 16 * 1024 + 100]]
    );
}

#[test]
fn a_log_of_an_earlier_build_is_appended_to_without_changing_its_lines() {
    let root = tempfile::tempdir().unwrap();
    let log = root.path().join("web");
    let copied = copy("unversioned/logs/web");
    fs::rename(copied.path(), &log).unwrap();
    let before = read(root.path(), "web", LogQuery::default());
    let limits = LogLimits {
        file_bytes: 1024,
        total_bytes: 1 << 20,
    };
    let mut writer = LogWriter::open(root.path(), "web", limits).unwrap();
    let time = Timestamp::from_nanos(1_790_000_100_000_000_000);
    writer.append(time, Stream::Stdout, b"new build").unwrap();
    let after = read(root.path(), "web", LogQuery::default());
    assert_eq!(after[..before.len()], before);
    assert_eq!(after.len(), before.len() + 1);
    let old = fs::read(fixture("unversioned/logs/web/0000000002.log")).unwrap();
    let new = fs::read(log.join("0000000002.log")).unwrap();
    assert!(new.starts_with(&old));
}
