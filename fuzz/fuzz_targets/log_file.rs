//! Log files: for any file, its lines, the last of them and those of a time range are what the
//! reference reader returns, and a writer continues after them.
//!
//! The first byte places a long line before or behind the rest, so that the rest lies across the
//! edges of the blocks the readers work with.
#![no_main]

use std::fs;

use libfuzzer_sys::fuzz_target;
use mainstay_fuzz::{Line, Scratch, block_on, last_lines, lines, window};
use mainstay_journal::{LogLimits, LogQuery, LogStore, LogWriter, Stream, Timestamp};

const LOG: &str = "app";
const FILE: &str = "app/0000000001.log";

fuzz_target!(|data: &[u8]| {
    let Some((&place, rest)) = data.split_first() else {
        return;
    };
    let bytes = with_long_line(place, rest);
    let scratch = Scratch::fresh();
    let path = scratch.write(FILE, &bytes);
    let all = lines(&bytes);
    let store = LogStore::open(scratch.path()).expect("the root is there");

    assert_eq!(read(&store, LogQuery::default()), all);
    for tail in [0, 1, 2, 3, 7, all.len(), all.len() + 1] {
        let found = read(&store, tail_of(tail));
        assert_eq!(found, last_lines(&all, tail), "the last {tail}");
    }
    // Readers rely on times that do not decrease; otherwise any result is valid.
    let times: Vec<_> = all.iter().filter_map(|line| line.time).collect();
    if times.is_sorted() {
        check_windows(&store, &all, &times);
    }

    let mut writer = LogWriter::open(scratch.path(), LOG, LogLimits::default())
        .expect("no contents refuse opening");
    writer
        .append(Timestamp::now(), Stream::Stdout, b"next")
        .expect("writing works after any contents");
    drop(writer);
    let after = fs::read(path).expect("the file is still there");
    assert!(after.starts_with(&bytes), "what was written stays");
    let last = read(&store, tail_of(1));
    assert_eq!(last.len(), 1, "the new line stands alone: {last:?}");
    assert_eq!(last[0].text, b"next");
});

/// Puts a line of about one or several blocks before or behind the bytes, if `place` says so.
fn with_long_line(place: u8, bytes: &[u8]) -> Vec<u8> {
    let blocks = match place {
        0..=127 => return bytes.to_vec(),
        128..=191 => 1,
        192..=223 => 2,
        224..=255 => 4,
    };
    let mut long_line = vec![b'-'; blocks * 64 * 1024 - usize::from(place % 32) * 8];
    long_line.push(b'\n');
    if place.is_multiple_of(2) {
        [&long_line, bytes].concat()
    } else {
        [bytes, b"\n", &long_line].concat()
    }
}

fn check_windows(store: &LogStore, all: &[Line], times: &[Timestamp]) {
    let middle = times.get(times.len() / 2).copied();
    let last = times.last().copied();
    for (since, until) in [
        (middle, None),
        (None, middle),
        (middle, middle),
        (last, last),
    ] {
        for tail in [None, Some(2)] {
            let query = LogQuery {
                tail: tail.map(|tail| tail as u64),
                since,
                until,
                follow: false,
            };
            let inside = window(all, since, until);
            let expected = match tail {
                Some(tail) => last_lines(inside, tail),
                None => inside.to_vec(),
            };
            assert_eq!(read(store, query), expected, "{query:?}");
        }
    }
}

fn tail_of(count: usize) -> LogQuery {
    LogQuery {
        tail: Some(count as u64),
        ..LogQuery::default()
    }
}

fn read(store: &LogStore, query: LogQuery) -> Vec<Line> {
    block_on(async {
        let mut stream = store.read(LOG, query).await.expect("the log is there");
        let mut lines = Vec::new();
        while let Some(chunk) = stream.next().await.expect("no contents fail a read") {
            assert!(!chunk.missed());
            lines.extend(chunk.records().map(Line::from));
        }
        lines
    })
}
