use std::fs;
use std::os::unix::fs::PermissionsExt;

use mainstay_journal::{
    LogError, LogLimits, LogQuery, LogRetention, LogStore, LogWriter, Stream, Timestamp,
};

use crate::log_support::{at, files, open, plainly, read, texts};
use crate::support::block_on;

#[test]
fn a_line_on_disk_has_the_cri_format() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    writer.append(at(0), Stream::Stdout, b"hello").unwrap();
    writer.append(at(1), Stream::Stderr, b"").unwrap();
    writer.append(at(2), Stream::Stdout, b"two\nlines").unwrap();
    writer
        .push_partial(at(3), Stream::Stdout, b"prompt> ")
        .unwrap();
    writer.push_line(at(4), Stream::Stdout, b"answer").unwrap();
    writer.flush().unwrap();
    let current = fs::read_to_string(dir.path().join("app/current")).unwrap();
    assert_eq!(
        current,
        "1970-01-01T00:00:00.000000000Z stdout F hello\n\
         1970-01-01T00:00:01.000000000Z stderr F \n\
         1970-01-01T00:00:02.000000000Z stdout F two\n\
         1970-01-01T00:00:02.000000000Z stdout F lines\n\
         1970-01-01T00:00:03.000000000Z stdout P prompt> \n\
         1970-01-01T00:00:04.000000000Z stdout F answer\n"
    );
    let mode = |path: &str| {
        fs::metadata(dir.path().join(path))
            .unwrap()
            .permissions()
            .mode()
            & 0o777
    };
    assert_eq!((mode("app"), mode("app/0000000001.log")), (0o700, 0o600));
}

#[test]
fn a_long_line_is_split_into_partial_records() {
    let dir = tempfile::tempdir().unwrap();
    let line: Vec<u8> = (b'a'..=b'z').cycle().take(3 * 16 * 1024 + 1).collect();
    open(dir.path())
        .append(at(0), Stream::Stdout, &line)
        .unwrap();
    let records = read(dir.path(), "app", LogQuery::default());
    let lengths: Vec<_> = records
        .iter()
        .map(|record| (record.partial, record.text.len()))
        .collect();
    assert_eq!(
        lengths,
        [(true, 16_384), (true, 16_384), (true, 16_384), (false, 1)]
    );
    assert_eq!(texts(dir.path(), "app"), [line]);
}

#[test]
fn text_joins_partial_records_of_each_stream() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    writer.push_partial(at(0), Stream::Stdout, b"out ").unwrap();
    writer.push_partial(at(0), Stream::Stderr, b"err ").unwrap();
    writer.push_line(at(0), Stream::Stdout, b"one").unwrap();
    writer.push_line(at(0), Stream::Stderr, b"two").unwrap();
    writer
        .push_partial(at(0), Stream::Stdout, b"unfinished")
        .unwrap();
    writer.flush().unwrap();
    let mut text = Vec::new();
    block_on(async {
        let store = LogStore::open(dir.path()).unwrap();
        let mut stream = store.read("app", LogQuery::default()).await.unwrap();
        while let Some(chunk) = stream.next().await.unwrap() {
            chunk.append_text(&mut text);
        }
    });
    assert_eq!(
        String::from_utf8(text).unwrap(),
        "out one\nerr two\nunfinished"
    );
}

#[test]
fn full_files_are_rotated_and_the_oldest_deleted_beyond_the_total() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        file_bytes: 1000,
        total_bytes: 5000,
    };
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    for n in 0..200 {
        writer
            .append(at(n), Stream::Stdout, format!("line {n}").as_bytes())
            .unwrap();
        let sizes: Vec<_> = files(dir.path(), "app")
            .iter()
            .map(|path| fs::metadata(path).unwrap().len())
            .collect();
        assert!(sizes.iter().all(|size| *size <= 1000), "{sizes:?}");
        assert!(sizes.iter().sum::<u64>() <= 5000, "{sizes:?}");
    }
    let target = fs::read_link(dir.path().join("app/current")).unwrap();
    assert_eq!(
        Some(target.as_path()),
        files(dir.path(), "app")
            .last()
            .unwrap()
            .file_name()
            .map(AsRef::as_ref)
    );
    let kept = texts(dir.path(), "app");
    assert!(kept.len() > 4000 / 50, "{} lines kept", kept.len());
    let expected: Vec<_> = (200 - kept.len()..200)
        .map(|n| format!("line {n}").into_bytes())
        .collect();
    assert_eq!(kept, expected);

    writer.set_limits(LogLimits {
        file_bytes: 1000,
        total_bytes: 2000,
    });
    assert!(files(dir.path(), "app").len() <= 2);
    drop(writer);
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    writer.append(at(1000), Stream::Stdout, b"after").unwrap();
    assert_eq!(texts(dir.path(), "app").last().unwrap(), b"after");
}

#[test]
fn a_clock_set_back_starts_a_new_file_and_jitter_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    let just_before = Timestamp::from_nanos(at(99).as_nanos() + 1);
    writer.append(at(100), Stream::Stdout, b"a").unwrap();
    writer.append(just_before, Stream::Stdout, b"b").unwrap();
    writer.append(at(99), Stream::Stdout, b"c").unwrap();
    writer.append(at(50), Stream::Stdout, b"d").unwrap();
    drop(writer);
    // The next writer knows the time too.
    let mut writer = open(dir.path());
    writer.append(at(10), Stream::Stdout, b"e").unwrap();
    let times: Vec<Vec<_>> = plainly(dir.path(), "app")
        .iter()
        .map(|file| {
            file.iter()
                .map(|line| line.time.unwrap().as_secs())
                .collect()
        })
        .collect();
    assert_eq!(times, [vec![100, 100], vec![99], vec![50], vec![10]]);
    // Each file is searched by itself.
    let query = LogQuery {
        since: Some(at(50)),
        until: Some(at(99)),
        ..LogQuery::default()
    };
    let found: Vec<_> = read(dir.path(), "app", query)
        .into_iter()
        .map(|line| line.text)
        .collect();
    assert_eq!(found, [b"c", b"d"]);
}

#[test]
fn times_do_not_decrease_in_a_file_started_by_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        file_bytes: 100,
        ..LogLimits::default()
    };
    let mut writer = LogWriter::open(dir.path(), "app", limits).unwrap();
    for (nanos, text) in [
        (
            10_000_000_000,
            &b"fills the first file so that the next line needs another"[..],
        ),
        (11_000_000_000, b"first of the second file"),
        (10_500_000_000, b"the clock went back a little"),
    ] {
        writer
            .append(Timestamp::from_nanos(nanos), Stream::Stdout, text)
            .unwrap();
    }
    for file in plainly(dir.path(), "app") {
        assert!(file.is_sorted_by_key(|line| line.time), "{file:?}");
    }
}

#[test]
fn a_torn_line_is_ended_and_never_truncated() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = open(dir.path());
    writer.append(at(0), Stream::Stdout, b"first").unwrap();
    writer
        .append(at(1), Stream::Stdout, &vec![b'x'; 20_000])
        .unwrap();
    drop(writer);
    let path = files(dir.path(), "app").pop().unwrap();
    let whole = fs::read(&path).unwrap();
    let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for cut in (first..first + 60)
        .chain((first + 16_400..first + 16_490).chain(whole.len() - 10..whole.len()))
    {
        fs::write(&path, &whole[..cut]).unwrap();
        let mut writer = open(dir.path());
        writer.append(at(2), Stream::Stdout, b"next").unwrap();
        let bytes = fs::read(&path).unwrap();
        assert!(bytes.starts_with(&whole[..cut]), "cut at {cut}");
        let lines = texts(dir.path(), "app");
        assert_eq!(lines.first().unwrap(), b"first", "cut at {cut}");
        assert_eq!(lines.last().unwrap(), b"next", "cut at {cut}");
        assert!(lines.len() <= 3, "cut at {cut}");
    }
}

#[test]
fn a_log_has_one_writer() {
    let dir = tempfile::tempdir().unwrap();
    let writer = open(dir.path());
    let second = LogWriter::open(dir.path(), "app", LogLimits::default());
    assert!(matches!(second, Err(LogError::Locked { log }) if log == "app"));
    LogWriter::open(dir.path(), "other", LogLimits::default()).unwrap();
    drop(writer);
    open(dir.path());
}

#[test]
fn names_cannot_leave_the_root() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("logs");
    let store = LogStore::open(&root).unwrap();
    let long = "a".repeat(161);
    for name in [
        "", ".", "..", "../x", "/etc", "a/b", "-a", "_a", "a b", "a\0", "ä", &long,
    ] {
        let opened = LogWriter::open(&root, name, LogLimits::default());
        assert!(
            matches!(opened, Err(LogError::InvalidName { .. })),
            "{name:?}"
        );
        let read = block_on(store.read(name, LogQuery::default()));
        assert!(
            matches!(read, Err(LogError::InvalidName { .. })),
            "{name:?}"
        );
        assert!(!store.exists(name));
    }
    for name in ["a", "0", "A", "a.b_c-d", &"a".repeat(160)] {
        LogWriter::open(&root, name, LogLimits::default()).unwrap();
        assert!(store.exists(name));
    }
    fs::create_dir(dir.path().join("outside")).unwrap();
    std::os::unix::fs::symlink(dir.path().join("outside"), root.join("link")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    fs::create_dir(root.join("_other")).unwrap();
    assert_eq!(
        store.sources().unwrap(),
        ["0", "A", "a", "a.b_c-d", &"a".repeat(160)]
    );
    for name in ["link", "file", "missing"] {
        let read = block_on(store.read(name, LogQuery::default()));
        assert!(matches!(read, Err(LogError::NotFound { log }) if log == name));
        assert!(!store.exists(name));
    }
}

#[test]
fn files_younger_than_the_retention_stay_up_to_its_size() {
    let root = tempfile::tempdir().unwrap();
    let limits = LogLimits {
        file_bytes: 1000,
        total_bytes: 3000,
    };
    let retention = LogRetention {
        min_age: std::time::Duration::from_secs(3600),
        max_bytes: 10_000,
    };
    let open = || LogWriter::open_retained(root.path(), "kept", limits, Some(retention)).unwrap();
    let mut writer = open();
    let line = [b'x'; 60];
    while writer.total_bytes() < 9000 {
        writer
            .append(Timestamp::now(), Stream::Stdout, &line)
            .unwrap();
    }
    let directory = root.path().join("kept");
    let files = || {
        let entries = fs::read_dir(&directory).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
        files.retain(|path| path.extension().is_some_and(|kind| kind == "log"));
        files.sort();
        files
    };
    assert!(files().len() >= 9, "beyond total_bytes: {:?}", files());
    drop(writer);
    let before = files();
    assert_eq!(open().take_removed_early(), 0);
    assert_eq!(files(), before, "opening the log removes none");

    // The three oldest become older than the retention.
    let old = std::time::SystemTime::now() - std::time::Duration::from_secs(7200);
    for path in &before[..3] {
        let file = fs::File::options().append(true).open(path).unwrap();
        file.set_modified(old).unwrap();
    }
    let mut writer = open();
    assert_eq!(files(), before[3..]);
    assert_eq!(writer.take_removed_early(), 0);

    // At the size limit young ones go, and are counted.
    for _ in 0..200 {
        writer
            .append(Timestamp::now(), Stream::Stdout, &line)
            .unwrap();
        assert!(writer.total_bytes() <= retention.max_bytes);
    }
    assert!(writer.take_removed_early() > 0);
    assert_eq!(writer.take_removed_early(), 0);
}

#[test]
fn a_deleted_log_is_created_again_with_the_next_line() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = open(root.path()).recreate_deleted();
    let mut written = 0;
    let mut append = |writer: &mut LogWriter| {
        written += 1;
        let line = format!("line {written}");
        writer
            .append(at(written), Stream::Stdout, line.as_bytes())
            .unwrap();
        line
    };
    append(&mut writer);
    // Only the file, the directory, all logs, and all of it twice.
    let log = root.path().join("app");
    let places = [log.join("current"), log.clone(), root.path().to_owned()];
    for deleted in places.iter().chain(&places) {
        if deleted.ends_with("current") {
            fs::remove_file(fs::canonicalize(deleted).unwrap()).unwrap();
        } else {
            fs::remove_dir_all(deleted).unwrap();
        }
        let mut lines = vec![append(&mut writer), append(&mut writer)];
        let found: Vec<_> = texts(root.path(), "app")
            .into_iter()
            .map(|line| String::from_utf8(line).unwrap())
            .collect();
        assert_eq!(found, lines, "{}", deleted.display());
        lines.push(append(&mut writer));
        let current = fs::read_to_string(log.join("current")).unwrap();
        assert_eq!(current.lines().count(), lines.len());
        // It is locked against a second writer as before.
        let second = LogWriter::open(root.path(), "app", LogLimits::default());
        assert!(matches!(second, Err(LogError::Locked { .. })));
    }
}

#[test]
fn the_log_of_a_writer_that_does_not_recreate_it_stays_deleted() {
    let root = tempfile::tempdir().unwrap();
    let mut writer = open(root.path());
    writer.append(at(0), Stream::Stdout, b"one").unwrap();
    fs::remove_dir_all(root.path().join("app")).unwrap();
    writer.append(at(1), Stream::Stdout, b"two").unwrap();
    assert!(!root.path().join("app").exists());
}
