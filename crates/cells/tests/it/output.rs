//! Output of executables: complete, unchanged, in order, with or without a reader.

use std::fmt::Write as _;
use std::fs;

use mainstay_cells::{CellEvent, ExitStatus};
use mainstay_journal::{LogLimits, LogQuery, Stream, Timestamp};

use crate::harness::{TestCells, many, soon};

/// A file that an executable writes to its output.
fn file_of(content: &[u8]) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("content");
    fs::write(&path, content).unwrap();
    let command = format!("cat {}", path.display());
    (directory, command)
}

/// Deterministic pseudo-random bytes.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(next).take(length).collect()
}

fn numbers(count: usize) -> String {
    let mut text = String::new();
    for number in 1..=count {
        writeln!(text, "{number}").unwrap();
    }
    text
}

#[tokio::test]
async fn unread_output_neither_blocks_nor_grows_memory() {
    let test = TestCells::new("flood");
    test.cells.set_log_limits(
        LogLimits {
            file_bytes: 4 << 20,
            total_bytes: 16 << 20,
        },
        0,
    );
    test.allocate("a").await;
    for (executable, script, bytes) in [
        ("endless", "head -c $BYTES /dev/zero", 256 << 20),
        (
            "lines",
            "yes 'a line like any other' | head -c $BYTES",
            40 << 20,
        ),
    ] {
        let bytes = many(bytes);
        let script = script.replace("$BYTES", &bytes.to_string());
        test.start_script("a", executable, &script).await;
        let (how, _) = test.ended("a", executable).await;
        assert_eq!(how, ExitStatus::Exited(0));
        let log = test
            .state()
            .join("cells/logs")
            .join(test.found("a", executable).log);
        let kept: u64 = fs::read_dir(log)
            .unwrap()
            .map(|file| file.unwrap().metadata().unwrap().len())
            .sum();
        assert!(kept <= 24 << 20, "{kept} bytes are kept");
    }
    let shim = test.status("a").shim_pid.unwrap();
    let status = fs::read_to_string(format!("/proc/{shim}/status")).unwrap();
    let peak = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))
        .unwrap();
    let peak: u64 = peak.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(peak < 48 << 10, "the shim took {peak} KiB");
    test.free_all().await;
}

#[tokio::test]
async fn output_bytes_are_preserved() {
    let test = TestCells::new("bytes");
    test.allocate("a").await;
    let mut content: Vec<u8> = (0..=255).collect();
    content.extend_from_slice(b"\r\n\n\n \t\x1b[31m \xff\xfe\n2026-01-01T00:00:00Z stdout F x\n");
    content.extend(noise(200_000));
    content.push(b'\n');
    let (_directory, command) = file_of(&content);
    test.start("a", "x", &command).await.unwrap();
    let (_, bytes) = test.output("a", "x").await;
    assert!(
        bytes == content,
        "{} bytes of {}",
        bytes.len(),
        content.len()
    );
    test.free_all().await;
}

#[tokio::test]
async fn a_line_of_ten_megabytes_stays_one_line() {
    let test = TestCells::new("long-line");
    test.allocate("a").await;
    let mut content = b"before\n".to_vec();
    content.extend(std::iter::repeat_n(b'x', 10 << 20));
    content.extend_from_slice(b"\nafter\n");
    let (_directory, command) = file_of(&content);
    test.start("a", "x", &command).await.unwrap();
    let (_, bytes) = test.output("a", "x").await;
    assert!(
        bytes == content,
        "{} bytes of {}",
        bytes.len(),
        content.len()
    );
    let mut log = test.log("a", "x", LogQuery::default()).await;
    let mut lines = 0;
    while let Some(chunk) = log.next().await.unwrap() {
        lines += chunk.records().filter(|record| !record.partial).count();
    }
    assert_eq!(lines, 3);
    test.free_all().await;
}

#[tokio::test]
async fn a_last_line_without_newline_is_kept_and_not_continued_by_the_next_run() {
    let test = TestCells::new("no-end");
    test.allocate("a").await;
    for (script, said) in [
        ("printf abc", "abc\n"),
        ("printf 'd\\ne'; printf f >&2", "d\ne\nf\n"),
        (
            "head -c 20000 /dev/zero | tr '\\0' y",
            &format!("{}\n", "y".repeat(20_000)),
        ),
        ("echo end", "end\n"),
    ] {
        test.start_script("a", "x", script).await;
        let (_, text) = test.ended("a", "x").await;
        let sorted = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(sorted(&text), sorted(said), "{script}");
    }
    test.free_all().await;
}

#[tokio::test]
async fn an_executable_that_closes_its_output_keeps_running() {
    let test = TestCells::new("closed");
    test.allocate("a").await;
    let script = "echo out; echo err >&2; exec >&- 2>&-; for i in 1 2 3; do true; done; exit 4";
    test.start_script("a", "x", script).await;
    let (how, said) = test.ended("a", "x").await;
    assert_eq!(how, ExitStatus::Exited(4));
    assert_eq!(said.len(), "out\nerr\n".len());
    test.free_all().await;
}

#[tokio::test]
async fn a_million_lines_are_complete_and_in_order_when_the_exit_is_recorded() {
    let test = TestCells::new("million");
    test.allocate("a").await;
    let count = many(1_000_000);
    let run = test.start("a", "x", &format!("seq {count}")).await.unwrap();
    let follow = LogQuery {
        since: Some(run.started()),
        follow: true,
        ..LogQuery::default()
    };
    let mut live = test.log("a", "x", follow).await;
    let expected = numbers(count);
    let mut seen = Vec::new();
    soon("all lines", async {
        while seen.len() < expected.len() {
            let chunk = live.next().await.unwrap().unwrap();
            assert!(!chunk.missed());
            chunk.append_text(&mut seen);
        }
    })
    .await;
    assert!(seen == expected.as_bytes(), "live");

    let is_end = |event: &CellEvent| matches!(event, CellEvent::Ended { .. });
    let CellEvent::Ended { run, .. } = test.events.until("the end", is_end).await else {
        unreachable!();
    };
    let last = LogQuery {
        tail: Some(1),
        ..LogQuery::default()
    };
    let chunk = test
        .log("a", "x", last)
        .await
        .next()
        .await
        .unwrap()
        .unwrap();
    let last = chunk.records().last().unwrap();
    assert_eq!(last.text, count.to_string().as_bytes());
    let end = Timestamp::from_nanos(run.end.unwrap().at);
    assert!((run.started()..=end).contains(&last.time.unwrap()));
    test.free_all().await;
}

#[tokio::test]
async fn each_stream_keeps_its_order() {
    let test = TestCells::new("streams");
    test.allocate("a").await;
    let count = many(2000);
    let script = format!("for i in $(seq {count}); do echo $i; echo $i >&2; done");
    test.start_script("a", "x", &script).await;
    test.ended("a", "x").await;
    let mut log = test.log("a", "x", LogQuery::default()).await;
    let mut streams = [Vec::new(), Vec::new()];
    while let Some(chunk) = log.next().await.unwrap() {
        for record in chunk.records() {
            let stream = &mut streams[usize::from(record.stream == Stream::Stderr)];
            stream.extend_from_slice(record.text);
            stream.push(b'\n');
        }
    }
    for stream in streams {
        assert_eq!(String::from_utf8(stream).unwrap(), numbers(count));
    }
    test.free_all().await;
}

#[tokio::test]
async fn output_of_descendants_after_the_exit_is_kept() {
    let test = TestCells::new("later");
    test.allocate("a").await;
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("go");
    let script = format!(
        "mkfifo {pipe}; (read word <{pipe}; echo later $word) & echo first; exit 0",
        pipe = pipe.display()
    );
    test.start_script("a", "x", &script).await;
    let (how, said) = test.ended("a", "x").await;
    assert_eq!((how, said.as_str()), (ExitStatus::Exited(0), "first\n"));
    fs::write(&pipe, "on\n").unwrap();
    test.until_said("a", "x", "later on\n").await;
    test.free_all().await;
}

#[tokio::test]
async fn a_follower_gets_the_first_line_of_a_log_that_is_created_with_it() {
    let mut test = TestCells::new("first-line");
    let directory = tempfile::tempdir().unwrap();
    let gate = directory.path().join("gate");
    let mode = rustix::fs::Mode::from_raw_mode(0o600);
    rustix::fs::mkfifoat(rustix::fs::CWD, &gate, mode).unwrap();
    test.allocate("a").await;
    for name in ["x", "y"] {
        let script = format!("read line <{}; echo $line; exec sleep 1000", gate.display());
        test.start_script("a", name, &script).await;
        let log = test.state().join("cells/logs").join(format!("a_{name}"));
        assert!(!log.exists(), "it has written nothing");
        let query = LogQuery {
            follow: name == "x",
            ..LogQuery::default()
        };
        let mut lines = test.log("a", name, query).await;
        if name == "y" {
            assert!(lines.next().await.unwrap().is_none());
        }
        test.again();
        let to = gate.clone();
        let said = tokio::task::spawn_blocking(move || fs::write(to, "at last\n"));
        soon("the executable to read", said).await.unwrap().unwrap();
        if name == "x" {
            let line = soon("the first line", lines.next()).await.unwrap().unwrap();
            let mut text = Vec::new();
            line.append_text(&mut text);
            assert_eq!(text, b"at last\n");
        }
        test.until_said("a", name, "at last\n").await;
    }
    test.free_all().await;
}

#[tokio::test]
async fn silent_executables_have_a_log_when_another_build_takes_over() {
    let test = TestCells::new("silent");
    test.allocate("a").await;
    test.start("a", "ended", "true").await.unwrap();
    test.ended("a", "ended").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let log = test.state().join("cells/logs/a_x");
    assert!(!log.exists());
    test.cells.hand_over();
    assert!(log.is_dir());
    // Started by another zygote.
    test.start("a", "y", "sleep 1000").await.unwrap();
    test.free_all().await;
    assert_eq!(test.left(), [] as [std::path::PathBuf; 0]);
}

#[tokio::test]
async fn each_executable_of_a_cell_has_its_own_log() {
    let test = TestCells::new("many-logs");
    test.allocate("a").await;
    let count = many(60);
    for number in 0..count {
        test.start("a", &format!("x{number}"), &format!("seq {number} 1000"))
            .await
            .unwrap();
    }
    for number in 0..count {
        let (how, said) = test.ended("a", &format!("x{number}")).await;
        assert_eq!(how, ExitStatus::Exited(0));
        assert_eq!(said.lines().next(), Some(number.to_string().as_str()));
        assert_eq!(said.lines().count(), 1001 - number);
    }
    test.free_all().await;
}
