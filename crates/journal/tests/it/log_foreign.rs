//! Log files that another program writes, as a kubelet has them.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use mainstay_journal::{LogError, LogQuery, LogStore, LogStream};

use crate::log_support::{at, drain, lines_of};
use crate::support::block_on;

const FOLLOW: LogQuery = LogQuery {
    tail: None,
    since: None,
    until: None,
    follow: true,
};

/// A pod's log directory with the journal's own root beside it.
struct Pod {
    dir: tempfile::TempDir,
    log: PathBuf,
}

impl Pod {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("pod/app")).unwrap();
        let log = dir.path().join("pod/app/0.log");
        fs::write(&log, "").unwrap();
        Self { dir, log }
    }

    fn store(&self) -> LogStore {
        LogStore::open(&self.dir.path().join("root")).unwrap()
    }

    fn rotated(&self, second: u32) -> PathBuf {
        PathBuf::from(format!("{}.20260301-12{second:04}", self.log.display()))
    }

    fn rotate(&self, second: u32) {
        fs::rename(&self.log, self.rotated(second)).unwrap();
        fs::write(&self.log, "").unwrap();
    }

    fn read(&self, query: LogQuery) -> Vec<String> {
        block_on(async {
            let mut stream = self.store().read_file(&self.log, query).await.unwrap();
            let lines = drain(&mut stream).await;
            lines.into_iter().map(|line| text(&line.text)).collect()
        })
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn write(path: &Path, seconds: impl IntoIterator<Item = i64>) {
    let mut file = OpenOptions::new().append(true).open(path).unwrap();
    for second in seconds {
        writeln!(file, "{} stdout F {second}", at(second)).unwrap();
    }
}

async fn next(stream: &mut LogStream) -> (Vec<String>, bool) {
    let chunk = stream.next().await.unwrap().expect("following goes on");
    let lines = lines_of(&chunk).map(|line| text(&line.text)).collect();
    (lines, chunk.missed())
}

fn numbers(range: std::ops::Range<i64>) -> Vec<String> {
    range.map(|number| number.to_string()).collect()
}

#[test]
fn readable_rotated_files_and_the_current_one_are_one_log() {
    let pod = Pod::new();
    for second in 0..3 {
        write(&pod.log, i64::from(second) * 10..i64::from(second + 1) * 10);
        pod.rotate(second);
    }
    write(&pod.log, 30..40);
    for other in [
        "0.log.20260301-120000.gz",
        "0.log.tmp",
        "0.log.1",
        "1.log",
        "0.log.2026030a-120000",
    ] {
        fs::write(pod.log.with_file_name(other), "not this\n").unwrap();
    }
    symlink("1.log", pod.log.with_file_name("0.log.20260301-130000")).unwrap();
    assert_eq!(pod.read(LogQuery::default()), numbers(0..40));
    let tail = |lines| LogQuery {
        tail: Some(lines),
        ..LogQuery::default()
    };
    assert!(pod.read(tail(0)).is_empty());
    assert_eq!(pod.read(tail(5)), numbers(35..40));
    assert_eq!(pod.read(tail(25)), numbers(15..40), "across three files");
    let between = LogQuery {
        since: Some(at(8)),
        until: Some(at(31)),
        ..LogQuery::default()
    };
    assert_eq!(pod.read(between), numbers(8..32));
}

#[test]
fn following_across_rotation_loses_and_duplicates_nothing() {
    let pod = Pod::new();
    block_on(async {
        let mut stream = pod.store().read_file(&pod.log, FOLLOW).await.unwrap();
        let mut seen = Vec::new();
        for second in 0..40_u32 {
            let first = i64::from(second) * 3;
            write(&pod.log, [first]);
            pod.rotate(second);
            write(&pod.log, [first + 1]);
            // The older ones are compressed and removed, so that their inodes are used again.
            if let Some(old) = second.checked_sub(2) {
                fs::remove_file(pod.rotated(old)).unwrap();
            }
            if second % 3 > 0 {
                let written = usize::try_from(second * 3 + 2).unwrap();
                while seen.len() < written {
                    let (lines, missed) = next(&mut stream).await;
                    assert!(!missed);
                    seen.extend(lines);
                }
            }
            write(&pod.log, [first + 2]);
        }
        while seen.len() < 120 {
            seen.extend(next(&mut stream).await.0);
        }
        assert_eq!(seen, numbers(0..120));
    });
}

#[test]
fn a_truncated_file_is_read_from_its_beginning() {
    let pod = Pod::new();
    write(&pod.log, 0..100);
    block_on(async {
        let mut stream = pod.store().read_file(&pod.log, FOLLOW).await.unwrap();
        assert_eq!(next(&mut stream).await, (numbers(0..100), false));
        fs::write(&pod.log, format!("{} stdout F after\n", at(7))).unwrap();
        let (lines, missed) = next(&mut stream).await;
        assert_eq!(lines, ["after"]);
        assert!(missed, "what stood before may not have been read");
    });
}

#[test]
fn following_ends_with_the_file_or_its_directory() {
    for remove_all in [false, true] {
        let pod = Pod::new();
        write(&pod.log, 0..1);
        block_on(async {
            let mut stream = pod.store().read_file(&pod.log, FOLLOW).await.unwrap();
            assert_eq!(next(&mut stream).await.0, ["0"]);
            write(&pod.log, 1..2);
            fs::remove_file(&pod.log).unwrap();
            if remove_all {
                fs::remove_dir(pod.log.parent().unwrap()).unwrap();
            }
            assert_eq!(next(&mut stream).await.0, ["1"], "to its last line");
            assert!(stream.next().await.unwrap().is_none());
        });
    }
}

#[test]
fn plain_text_is_read_too() {
    let pod = Pod::new();
    fs::write(&pod.log, b"one\n\xff\xfe\n\nno end").unwrap();
    block_on(async {
        let query = LogQuery {
            tail: Some(3),
            ..LogQuery::default()
        };
        let mut stream = pod.store().read_file(&pod.log, query).await.unwrap();
        let mut bytes = Vec::new();
        while let Some(chunk) = stream.next().await.unwrap() {
            chunk.append_text(&mut bytes);
        }
        assert_eq!(bytes, b"\xff\xfe\n\nno end\n");
    });
}

#[test]
fn only_regular_files_are_read_and_no_symlink_is_followed() {
    let pod = Pod::new();
    let secret = pod.dir.path().join("secret");
    fs::write(&secret, "secret\n").unwrap();
    let link = pod.log.with_file_name("link.log");
    symlink(&secret, &link).unwrap();
    let pipe = pod.log.with_file_name("pipe.log");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &pipe,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let directory = pod.dir.path().join("pod");
    block_on(async {
        let store = pod.store();
        for path in [&link, &pipe, &directory] {
            let error = store.read_file(path, FOLLOW).await.unwrap_err();
            assert!(matches!(error, LogError::Open { .. }), "{path:?}: {error}");
        }
        for path in ["", "/", "/nonexistent/0.log", "..", "0.log\0"] {
            let error = store.read_file(Path::new(path), FOLLOW).await.unwrap_err();
            let refused = matches!(error, LogError::NotFound { .. } | LogError::Open { .. });
            assert!(refused, "{path:?}: {error}");
        }
        // A directory on the way may be a link: it is part of the machine's own set-up.
        let through = pod.dir.path().join("pods");
        symlink(&directory, &through).unwrap();
        write(&pod.log, 0..1);
        let log = through.join("app/0.log");
        let mut stream = store.read_file(&log, FOLLOW).await.unwrap();
        assert_eq!(next(&mut stream).await.0, ["0"]);
        write(&pod.log, 1..2);
        assert_eq!(next(&mut stream).await.0, ["1"]);
    });
}
