use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use mainstay_journal::{
    LogChunk, LogLimits, LogQuery, LogStore, LogStream, LogWriter, Stream, Timestamp,
};

use crate::child;
use crate::log_support::{at, files, lines_of, open};
use crate::support::{TEST_TIMEOUT, block_on};

const FOLLOW: LogQuery = LogQuery {
    tail: None,
    since: None,
    until: None,
    follow: true,
};
const ONLY_NEW: LogQuery = LogQuery {
    tail: Some(0),
    ..FOLLOW
};

fn texts(chunk: &LogChunk) -> Vec<String> {
    lines_of(chunk)
        .map(|line| String::from_utf8(line.text).unwrap())
        .collect()
}

async fn next(stream: &mut LogStream) -> Vec<String> {
    texts(
        &stream
            .next()
            .await
            .unwrap()
            .expect("following does not end"),
    )
}

/// Nothing more is there now.
async fn assert_waiting(stream: &mut LogStream) {
    let waited = tokio::time::timeout(Duration::from_millis(20), stream.next()).await;
    assert!(waited.is_err(), "{waited:?}");
}

#[test]
fn new_lines_are_delivered_with_their_newline() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    writer.append(at(0), Stream::Stdout, b"before").unwrap();
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let mut all = store.read("app", FOLLOW).await.unwrap();
        let mut new = store.read("app", ONLY_NEW).await.unwrap();
        assert_eq!(next(&mut all).await, ["before"]);
        let path = files(dir.path(), "app").pop().unwrap();
        let mut bytes = fs::read(&path).unwrap();
        bytes.extend_from_slice(format!("{} stdout F hal", at(1)).as_bytes());
        fs::write(&path, &bytes).unwrap();
        assert_waiting(&mut all).await;
        assert_waiting(&mut new).await;
        let mut half = store.read("app", ONLY_NEW).await.unwrap();
        bytes.extend_from_slice(b"f\n");
        fs::write(&path, &bytes).unwrap();
        for stream in [&mut all, &mut new, &mut half] {
            assert_eq!(next(stream).await, ["half"]);
            assert_waiting(stream).await;
        }
    });
}

#[test]
fn a_cancelled_wait_loses_no_line() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        file_bytes: 500,
        total_bytes: u64::MAX,
    };
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let mut stream = store.read("app", FOLLOW).await.unwrap();
        let mut seen = Vec::new();
        for n in 0..200 {
            writer
                .append(at(n), Stream::Stdout, n.to_string().as_bytes())
                .unwrap();
            tokio::select! {
                biased;
                chunk = stream.next() => seen.extend(texts(&chunk.unwrap().unwrap())),
                () = tokio::task::yield_now() => {}
            }
        }
        while seen.len() < 200 {
            seen.extend(next(&mut stream).await);
        }
        let expected: Vec<_> = (0..200).map(|n| n.to_string()).collect();
        assert_eq!(seen, expected);
    });
}

#[test]
fn a_follower_slower_than_retention_gets_missed() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        file_bytes: 1000,
        total_bytes: 3000,
    };
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        writer.append(at(0), Stream::Stdout, b"0").unwrap();
        let mut stream = store.read("app", FOLLOW).await.unwrap();
        assert_eq!(next(&mut stream).await, ["0"]);
        for n in 1..500 {
            writer
                .append(at(n), Stream::Stdout, n.to_string().as_bytes())
                .unwrap();
        }
        let (mut seen, mut gaps) = (vec![0], 0);
        while seen.last() != Some(&499) {
            let chunk = stream.next().await.unwrap().unwrap();
            let numbers: Vec<i64> = texts(&chunk)
                .iter()
                .map(|text| text.parse().unwrap())
                .collect();
            let skipped = numbers[0] != seen[seen.len() - 1] + 1;
            assert_eq!(
                chunk.missed(),
                skipped,
                "told if and only if lines are missing"
            );
            gaps += usize::from(skipped);
            seen.extend(numbers);
        }
        assert_eq!(gaps, 1);
        let steps = seen
            .windows(2)
            .filter(|pair| pair[1] != pair[0] + 1)
            .count();
        assert_eq!(steps, 1, "no line lost but where it was told");
    });
}

#[test]
fn a_snapshot_with_deleted_files_reports_missed_and_ends_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        file_bytes: 1000,
        total_bytes: 3000,
    };
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    let mut append = |numbers: std::ops::Range<i64>| {
        for n in numbers {
            writer
                .append(at(n), Stream::Stdout, n.to_string().as_bytes())
                .unwrap();
        }
    };
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        append(0..40);
        let mut stream = store.read("app", LogQuery::default()).await.unwrap();
        let first = stream.next().await.unwrap().unwrap();
        assert!(!first.missed() && texts(&first)[0] == "0");
        append(40..500);
        let gap = stream.next().await.unwrap().unwrap();
        assert!(gap.missed());
        assert_eq!(gap.records().count(), 0, "nothing newer than the snapshot");
        assert!(stream.next().await.unwrap().is_none());
    });
}

#[test]
fn followers_keep_up_with_a_writer_that_rotates_all_the_time() {
    const LINES: i64 = 6000;
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        // Two or three lines a file: often one is left between a reader's last look at it
        // and its look for the next.
        file_bytes: 130,
        total_bytes: u64::MAX,
    };
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let mut tasks = Vec::new();
        for _ in 0..4 {
            let mut stream = store.read("app", FOLLOW).await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut expected = 0;
                while expected < LINES {
                    for text in next(&mut stream).await {
                        assert_eq!(text, expected.to_string());
                        expected += 1;
                    }
                }
            }));
        }
        let path = dir.path().to_owned();
        let writing = std::thread::spawn(move || {
            for n in 0..LINES {
                writer
                    .push_line(at(n), Stream::Stdout, n.to_string().as_bytes())
                    .unwrap();
                if n % 7 > 0 {
                    writer.flush().unwrap();
                }
                if n % 1009 == 0 {
                    drop(writer);
                    writer = LogWriter::open(&path, "app", limits).unwrap();
                }
            }
            writer.flush().unwrap();
        });
        for task in tasks {
            tokio::time::timeout(TEST_TIMEOUT, task)
                .await
                .expect("timed out")
                .unwrap();
        }
        writing.join().unwrap();
    });
}

#[test]
fn a_log_without_lines_can_be_followed_from_its_beginning() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("app")).unwrap();
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let mut all = store.read("app", FOLLOW).await.unwrap();
        let mut new = store.read("app", ONLY_NEW).await.unwrap();
        assert_waiting(&mut all).await;
        let mut snapshot = store.read("app", LogQuery::default()).await.unwrap();
        assert!(snapshot.next().await.unwrap().is_none());
        open(dir.path())
            .append(at(0), Stream::Stdout, b"first")
            .unwrap();
        assert_eq!(next(&mut all).await, ["first"]);
        assert_eq!(next(&mut new).await, ["first"]);
    });
}

#[test]
fn following_ends_when_the_log_is_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let mut stream = store.read("app", FOLLOW).await.unwrap();
        assert_waiting(&mut stream).await;
        writer.append(at(0), Stream::Stdout, b"last words").unwrap();
        assert_eq!(next(&mut stream).await, ["last words"]);
        drop(writer);
        fs::remove_dir_all(dir.path().join("app")).unwrap();
        assert!(stream.next().await.unwrap().is_none());
        assert!(
            stream.next().await.unwrap().is_none(),
            "and stays at its end"
        );
        // A log of the same name made later is another log.
        let mut writer = open(dir.path());
        let mut stream = store.read("app", FOLLOW).await.unwrap();
        writer.append(at(1), Stream::Stdout, b"anew").unwrap();
        assert_eq!(next(&mut stream).await, ["anew"]);
    });
}

#[test]
fn following_ends_at_until() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let now = Timestamp::now();
        let after = |nanos: i64| Timestamp::from_nanos(now.as_nanos() + nanos);
        writer.append(now, Stream::Stdout, b"in time").unwrap();
        // By the clock.
        let soon = LogQuery {
            until: Some(after(30_000_000)),
            ..FOLLOW
        };
        let mut stream = store.read("app", soon).await.unwrap();
        assert_eq!(next(&mut stream).await, ["in time"]);
        assert!(stream.next().await.unwrap().is_none());
        // By a record that is too late.
        let much_later = LogQuery {
            until: Some(after(i64::MAX / 8)),
            ..FOLLOW
        };
        let mut stream = store.read("app", much_later).await.unwrap();
        assert_eq!(next(&mut stream).await, ["in time"]);
        assert_waiting(&mut stream).await;
        writer
            .append(after(i64::MAX / 8 + 1), Stream::Stdout, b"too late")
            .unwrap();
        assert!(stream.next().await.unwrap().is_none());
    });
}

#[test]
fn following_since_a_future_time_starts_then() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    writer.append(at(10), Stream::Stdout, b"early").unwrap();
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        for tail in [None, Some(5)] {
            let query = LogQuery {
                since: Some(at(1000)),
                tail,
                ..FOLLOW
            };
            let mut stream = store.read("app", query).await.unwrap();
            assert_waiting(&mut stream).await;
        }
        let query = LogQuery {
            since: Some(at(1000)),
            ..FOLLOW
        };
        let mut stream = store.read("app", query).await.unwrap();
        writer
            .append(at(20), Stream::Stdout, b"still early")
            .unwrap();
        assert_waiting(&mut stream).await;
        writer.append(at(1000), Stream::Stdout, b"now").unwrap();
        assert_eq!(next(&mut stream).await, ["now"]);
    });
}

#[test]
fn two_hundred_followers_share_one_inotify_instance() {
    let dir = tempfile::tempdir().unwrap();
    child::run("many-followers", dir.path());
}

fn inotify_instances() -> usize {
    let links = fs::read_dir("/proc/self/fd").unwrap();
    links
        .filter_map(|entry| fs::read_link(entry.unwrap().path()).ok())
        .filter(|link| link.to_str().is_some_and(|name| name.contains("inotify")))
        .count()
}

/// In a process of its own, because other tests follow logs too.
pub(crate) fn many_followers(root: &Path) {
    const LINES: i64 = 300;
    let limits = LogLimits {
        file_bytes: 2000,
        total_bytes: u64::MAX,
    };
    let mut writer = LogWriter::open(root, "app", limits).unwrap();
    let mut other = LogWriter::open(root, "other", limits).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build();
    runtime.unwrap().block_on(async {
        assert_eq!(inotify_instances(), 0);
        let store = LogStore::open(root).unwrap();
        let mut unrelated = store.read("other", FOLLOW).await.unwrap();
        let mut tasks = Vec::new();
        for _ in 0..200 {
            let mut stream = store.read("app", FOLLOW).await.unwrap();
            tasks.push(tokio::spawn(async move {
                let mut seen = Vec::new();
                while seen.len() < usize::try_from(LINES).unwrap() {
                    seen.extend(next(&mut stream).await);
                }
                seen
            }));
        }
        assert_eq!(inotify_instances(), 1);
        for n in 0..LINES {
            writer
                .append(at(n), Stream::Stdout, n.to_string().as_bytes())
                .unwrap();
        }
        let expected: Vec<_> = (0..LINES).map(|n| n.to_string()).collect();
        for task in tasks {
            assert_eq!(task.await.unwrap(), expected);
        }
        assert_eq!(inotify_instances(), 1, "one is still followed");
        other.append(at(0), Stream::Stdout, b"other").unwrap();
        assert_eq!(next(&mut unrelated).await, ["other"]);
        drop(unrelated);
        let deadline = Instant::now() + TEST_TIMEOUT;
        while inotify_instances() > 0 {
            assert!(
                Instant::now() < deadline,
                "the instance is given back with the last follower"
            );
            tokio::task::yield_now().await;
        }
    });
}
