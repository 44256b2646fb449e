use std::fs;

use mainstay_journal::{LogQuery, LogStore, Stream};
use proptest::prelude::*;

use crate::log_support::{at, first_file, lines_of, open, plainly, read};
use crate::support::block_on;

fn foreign(bytes: &[u8]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    drop(open(dir.path()));
    fs::write(first_file(dir.path(), "app"), bytes).unwrap();
    dir
}

#[test]
fn an_endless_line_is_delivered_in_bounded_pieces() {
    const LEN: usize = 5_000_000;
    for (head, tail) in [
        ("", ""),
        (
            "1970-01-01T00:00:01Z stderr F ",
            "\n1970-01-01T00:00:02Z stdout F after\n",
        ),
    ] {
        let dir = foreign(format!("{head}{}{tail}", "y".repeat(LEN)).as_bytes());
        let (mut total, mut last, mut pieces) = (0, None, 0);
        block_on(async {
            let store = LogStore::open(dir.path()).unwrap();
            let mut stream = store.read("app", LogQuery::default()).await.unwrap();
            while let Some(chunk) = stream.next().await.unwrap() {
                for line in lines_of(&chunk).filter(|line| line.text != b"after") {
                    assert!(line.text.len() <= 1024 * 1024);
                    assert_eq!(line.stream == Stream::Stderr, !head.is_empty());
                    assert_eq!(line.time, (!head.is_empty()).then(|| at(1)));
                    total += line.text.len();
                    pieces += 1;
                    last = Some(line.partial);
                }
            }
        });
        assert_eq!((total, last), (LEN, Some(false)));
        assert!(pieces > 4);
        let tail_lines = read(
            dir.path(),
            "app",
            LogQuery {
                tail: Some(1),
                ..LogQuery::default()
            },
        );
        assert_eq!(tail_lines.len() == 1, !tail.is_empty());
        let since = LogQuery {
            since: Some(at(2)),
            ..LogQuery::default()
        };
        let expected: &[&[u8]] = if tail.is_empty() { &[] } else { &[b"after"] };
        let found: Vec<_> = read(dir.path(), "app", since)
            .into_iter()
            .map(|line| line.text)
            .collect();
        assert_eq!(found, expected);
    }
}

#[test]
fn corrupt_lines_are_skipped_by_the_search_and_delivered_as_they_are() {
    // Large enough that the search jumps, with damage wherever it lands.
    let mut bytes = Vec::new();
    for second in 0..5000 {
        bytes.extend_from_slice(format!("{} stdout F line {second}\n", at(second)).as_bytes());
        if second % 3 == 0 {
            bytes.extend_from_slice(&b"#".repeat(usize::try_from(second % 700).unwrap()));
            bytes.push(b'\n');
        }
    }
    let dir = foreign(&bytes);
    let all = plainly(dir.path(), "app").remove(0);
    for (since, until) in [
        (0, 4999),
        (1, 2),
        (2500, 2500),
        (4321, 4800),
        (-5, 0),
        (4999, 9999),
        (6000, 7000),
    ] {
        let query = LogQuery {
            since: Some(at(since)),
            until: Some(at(until)),
            ..LogQuery::default()
        };
        let position = |reached: &dyn Fn(i64) -> bool| {
            let found = all
                .iter()
                .position(|line| line.time.is_some_and(|time| reached(time.as_secs())));
            found.unwrap_or(all.len())
        };
        let expected = &all[position(&|time| time >= since)..position(&|time| time > until)];
        assert_eq!(
            read(dir.path(), "app", query),
            expected,
            "{since}..={until}"
        );
        let query = LogQuery {
            tail: Some(5),
            ..query
        };
        let last = &expected[expected.len().saturating_sub(5)..];
        assert_eq!(
            read(dir.path(), "app", query),
            last,
            "tail of {since}..={until}"
        );
    }
}

#[test]
fn an_empty_line_without_the_trailing_space_has_a_time() {
    let dir = foreign(b"1970-01-01T00:00:01Z stdout F\n1970-01-01T00:00:02Z stdout F two\n");
    let count = |since, until| {
        let query = LogQuery {
            since: Some(at(since)),
            until: Some(at(until)),
            ..LogQuery::default()
        };
        read(dir.path(), "app", query).len()
    };
    assert_eq!(
        (count(1, 1), count(1, 2), count(2, 2), count(0, 0)),
        (1, 2, 1, 0)
    );
}

#[test]
fn entries_that_are_no_log_files_are_skipped() {
    let dir = foreign(format!("{} stdout F one\n", at(1)).as_bytes());
    let log = dir.path().join("app");
    fs::create_dir(log.join("0000000000.log")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", log.join("0000000007.log")).unwrap();
    fs::write(log.join("+000000002.log"), "other").unwrap();
    fs::write(log.join("00000000003.log"), "other").unwrap();
    for tail in [None, Some(5)] {
        let lines = read(
            dir.path(),
            "app",
            LogQuery {
                tail,
                ..LogQuery::default()
            },
        );
        assert_eq!(lines.len(), 1, "{lines:?}");
    }
    open(dir.path())
        .append(at(2), Stream::Stdout, b"two")
        .unwrap();
    assert_eq!(read(dir.path(), "app", LogQuery::default()).len(), 2);
}

#[test]
fn an_unterminated_last_line_counts_as_a_line() {
    let dir = foreign(format!("{} stdout F one\n{} stdout F tw", at(1), at(2)).as_bytes());
    let texts = |tail| -> Vec<_> {
        let query = LogQuery {
            tail,
            ..LogQuery::default()
        };
        read(dir.path(), "app", query)
            .into_iter()
            .map(|line| line.text)
            .collect()
    };
    assert_eq!(texts(None), [&b"one"[..], b"tw"]);
    assert_eq!(texts(Some(1)), [b"tw"]);
    assert_eq!(texts(Some(2)), [&b"one"[..], b"tw"]);
}

proptest! {
    #[test]
    fn any_file_can_be_read(bytes: Vec<u8>, tail: Option<u8>, since: Option<i8>, until: Option<i8>) {
        let dir = foreign(&bytes);
        let query = LogQuery {
            tail: tail.map(u64::from),
            since: since.map(|seconds| at(seconds.into())),
            until: until.map(|seconds| at(seconds.into())),
            follow: false,
        };
        let found = read(dir.path(), "app", query);
        if query == LogQuery::default() {
            prop_assert_eq!(found, plainly(dir.path(), "app").remove(0));
        }
    }
}
