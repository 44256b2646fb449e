//! Restarts of the engine: after an exit, after a crash between two steps, and with corrupt files.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use mainstay_cells::{CellError, CellEvent, CellSpec, ExitStatus, Limits, Namespace};
use mainstay_journal::{LogQuery, LogStream};
use rustix::process::{Pid, Signal, kill_process};

use crate::harness::{TestCells, many, name, on_every_kind, soon, until_gone};

fn kill(pid: i32) {
    kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL).unwrap();
}

#[tokio::test]
async fn a_restarted_engine_adopts_everything() {
    on_every_kind("again", async |mut test| {
        let spec = CellSpec {
            limits: Limits {
                pids: Some(50),
                ..Limits::default()
            },
            hostname: Some("kept".to_owned()),
            ..CellSpec::default()
        };
        test.allocate_as("a", spec).await;
        test.allocate("a/b").await;
        test.allocate("empty").await;
        test.start_script("a", "done", "echo said; exit 7").await;
        test.ended("a", "done").await;
        test.start("a", "running", "sleep 1000").await.unwrap();
        test.start("a/b", "nested", "sleep 1000").await.unwrap();
        let before = test.cells.list();
        // Events are published in order: with this one all are.
        let is_last = |event: &CellEvent| {
            matches!(event, CellEvent::Started { executable, .. } if executable.as_str() == "nested")
        };
        test.events.until("the last start", is_last).await;
        let published = test.events.published().len();
        for _ in 0..3 {
            test.without_engine(async |_| {}).await;
            assert_eq!(test.cells.list(), before);
        }
        assert_eq!(
            test.events.published().len(),
            published,
            "no event is published twice"
        );
        let (how, said) = test.ended("a", "done").await;
        assert_eq!((how, said.as_str()), (ExitStatus::Exited(7), "said\n"));
        // The adopted executables can be operated.
        let twice = test.start("a", "running", "true").await.unwrap_err();
        assert!(matches!(twice, CellError::AlreadyRunning { .. }), "{twice}");
        assert_eq!(test.says("a", "hostname").await, "kept\n");
        test.stop("a", "running").await.unwrap();
        let (how, _) = test.ended("a", "running").await;
        assert!(
            matches!(how, ExitStatus::Killed { signal: 15, .. }),
            "{how:?}"
        );
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn an_exit_without_a_daemon_is_published_once_with_its_code() {
    let mut test = TestCells::new("unseen");
    test.allocate("a").await;
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("go");
    let script = format!(
        "mkfifo {0}; echo ready; read word <{0}; echo $word; exit 42",
        pipe.display()
    );
    let run = test.start_script("a", "x", &script).await;
    test.until_said("a", "x", "ready").await;
    test.without_engine(async |_| {
        fs::write(&pipe, "unseen\n").unwrap();
        until_gone(run.pid).await;
    })
    .await;
    // The shim writes the record after the exit.
    let is_end = |event: &CellEvent| matches!(event, CellEvent::Ended { .. });
    test.events.until("the end", is_end).await;
    let (how, said) = test.ended("a", "x").await;
    assert_eq!(
        (how, said.as_str()),
        (ExitStatus::Exited(42), "ready\nunseen\n")
    );
    for _ in 0..3 {
        test.again();
    }
    assert_eq!(test.events.ends_of("x", 1).await, [ExitStatus::Exited(42)]);
    test.free_all().await;
}

#[tokio::test]
async fn no_output_is_lost_without_a_daemon() {
    let mut test = TestCells::new("counter");
    test.allocate("a").await;
    let script = "i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done";
    test.start_script("a", "counter", script).await;
    let mut lines = Vec::new();
    for upto in [10, 20, 30] {
        let query = LogQuery {
            follow: true,
            ..LogQuery::default()
        };
        lines.clear();
        let log = test.log("a", "counter", query).await;
        read_until(log, &mut lines, upto).await;
        let text = String::from_utf8(lines.clone()).unwrap();
        for (line, number) in text.lines().zip(1..) {
            assert_eq!(line, number.to_string());
        }
        test.without_engine(async |_| {}).await;
    }
    test.free_all().await;
}

async fn read_until(mut log: LogStream, into: &mut Vec<u8>, line: usize) {
    let wanted = format!("\n{line}\n");
    soon("the counter", async {
        while !String::from_utf8_lossy(into).contains(&wanted) {
            log.next().await.unwrap().unwrap().append_text(into);
        }
    })
    .await;
}

#[tokio::test]
async fn executables_are_lost_with_their_shim_and_the_cell_stays_usable() {
    on_every_kind("lost", async |mut test| {
        let shared = CellSpec {
            share: [Namespace::Pid, Namespace::Mount].into(),
            ..CellSpec::default()
        };
        test.allocate("own").await;
        test.allocate_as("shared", shared).await;
        test.allocate("own/nested").await;
        test.start("own/nested", "x", "sleep 1000").await.unwrap();
        for cell in ["own", "shared"] {
            test.start_script(cell, "done", "exit 3").await;
            test.ended(cell, "done").await;
            let run = test.start(cell, "x", "sleep 1000").await.unwrap();
            kill(test.status(cell).shim_pid.unwrap());
            let (how, _) = test.ended(cell, "x").await;
            assert_eq!(how, ExitStatus::Lost, "{cell}");
            until_gone(run.pid).await;
            assert_eq!(test.ended(cell, "done").await.0, ExitStatus::Exited(3));
            assert_eq!(test.says(cell, "echo again").await, "again\n");
            test.start(cell, "x", "sleep 1000").await.unwrap();
            assert_eq!(test.record(cell, "x").runs, 2);
        }
        assert!(
            test.record("own/nested", "x").run.is_running(),
            "it has its own"
        );
        // Again, with no daemon running.
        for cell in ["own", "shared"] {
            let run = test.record(cell, "x").run;
            let shim = test.status(cell).shim_pid.unwrap();
            test.without_engine(async |_| {
                kill(shim);
                until_gone(shim).await;
            })
            .await;
            assert_eq!(test.ended(cell, "x").await.0, ExitStatus::Lost);
            until_gone(run.pid).await;
            assert_eq!(test.says(cell, "echo again").await, "again\n");
        }
        assert_eq!(test.events.ends_of("x", 4).await, [ExitStatus::Lost; 4]);
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn corrupt_records_do_not_affect_other_cells() {
    let mut test = TestCells::new("damaged");
    test.allocate("good").await;
    test.start("good", "x", "sleep 1000").await.unwrap();
    test.start_script("good", "done", "echo kept; exit 5").await;
    test.ended("good", "done").await;
    let garbage: [&[u8]; 6] = [
        b"",
        b"{",
        b"\0\0\0\0",
        b"[1, 2]",
        br#"{"name": "../../etc", "spec": {}, "allocated": 0}"#,
        br#"{"name": "elsewhere", "spec": {"limits": {"pids": -1}}, "allocated": 0}"#,
    ];
    test.without_engine(async |state| {
        let cells = state.join("cells");
        for (number, bytes) in garbage.iter().enumerate() {
            let cell = cells.join(format!("cells/bad{number}"));
            fs::create_dir(&cell).unwrap();
            fs::write(cell.join("cell.json"), bytes).unwrap();
            fs::write(
                cells.join(format!("executables/good_bad{number}.json")),
                bytes,
            )
            .unwrap();
        }
        fs::write(cells.join("cells/a-file"), "x").unwrap();
        fs::create_dir(cells.join("executables/a-directory")).unwrap();
        fs::write(cells.join("logs/a-file"), "x").unwrap();
        let cursor = cells.join("told");
        let mut text = fs::read(&cursor).unwrap();
        text.extend_from_slice(b"garbage\n{\"cell\":\"good\",\"allocated\":9");
        fs::write(&cursor, text).unwrap();
    })
    .await;
    let listed = test.cells.list();
    let names = |unreadable: bool| -> Vec<&str> {
        listed
            .iter()
            .filter(|status| status.unreadable.is_some() == unreadable)
            .map(|status| status.cell.name.as_str())
            .collect()
    };
    assert_eq!(names(false), ["good"]);
    let bad: Vec<String> = (0..garbage.len()).map(|n| format!("bad{n}")).collect();
    assert_eq!(names(true)[0], "a-file");
    assert_eq!(names(true)[1..], bad);
    assert!(test.record("good", "x").run.is_running());
    let (how, said) = test.ended("good", "done").await;
    assert_eq!((how, said.as_str()), (ExitStatus::Exited(5), "kept\n"));
    test.says("good", "true").await;
    assert_eq!(test.events.ends_of("done", 1).await.len(), 1);
    // Unreadable records are kept until their cell is freed.
    assert!(test.state().join("cells/cells/bad1/cell.json").exists());
    for status in &listed {
        test.free(status.cell.name.as_str()).await;
    }
    assert!(test.cells.list().is_empty());
    let cells = test.state().join("cells");
    assert_eq!(fs::read_dir(cells.join("cells")).unwrap().count(), 0);
    let left = |directory: &str| -> Vec<_> {
        let entries = fs::read_dir(cells.join(directory)).unwrap();
        entries.map(|entry| entry.unwrap().file_name()).collect()
    };
    assert_eq!(left("executables"), ["a-directory"]);
    assert_eq!(left("logs"), ["a-file"]);
}

#[tokio::test]
async fn an_executable_with_a_corrupt_record_can_be_started() {
    let mut test = TestCells::new("damaged-run");
    test.allocate("a").await;
    test.start_script("a", "x", "echo one").await;
    test.ended("a", "x").await;
    test.without_engine(async |state| {
        fs::write(state.join("cells/executables/a_x.json"), "{\"cell\":\"a\",").unwrap();
    })
    .await;
    let (how, said) = test.run("a", "x", "echo two").await;
    assert_eq!((how, said.as_str()), (ExitStatus::Exited(0), "two\n"));
    test.free_all().await;
}

#[tokio::test]
async fn a_cell_with_a_corrupt_record_keeps_its_output_until_it_is_repaired() {
    let mut test = TestCells::new("mended");
    test.allocate("a").await;
    test.start_script("a", "x", "echo precious").await;
    test.ended("a", "x").await;
    let record = test.state().join("cells/cells/a/cell.json");
    let good = fs::read(&record).unwrap();
    test.without_engine(async |_| fs::write(&record, &good[..good.len() / 2]).unwrap())
        .await;
    let reason = test.status("a").unreadable.unwrap();
    assert!(reason.contains("cell.json is corrupt: EOF"), "{reason}");
    let allocated = test.cells.allocate(name("a"), CellSpec::default()).await;
    let error = allocated.unwrap_err();
    assert!(matches!(error, CellError::Unreadable { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains(&reason), "{text}");
    assert!(text.contains("mainstay cell free a"), "{text}");
    for refused in [
        test.start("a", "x", "true").await.map(drop),
        test.stop("a", "x").await,
        test.cells
            .allocate(name("a/b"), CellSpec::default())
            .await
            .map(drop),
    ] {
        let error = refused.unwrap_err();
        assert!(matches!(error, CellError::Unreadable { .. }), "{error}");
    }
    test.without_engine(async |_| fs::write(&record, &good).unwrap())
        .await;
    let (how, said) = test.ended("a", "x").await;
    assert_eq!((how, said.as_str()), (ExitStatus::Exited(0), "precious\n"));
    test.free_all().await;
}

/// Free kills what runs in it, and removes its cgroups, records and logs.
#[tokio::test]
async fn a_cell_with_an_unreadable_record_can_be_freed_and_allocated_again() {
    on_every_kind("unreadable", async |mut test| {
        let long = format!("{0}/{0}", "x".repeat(63));
        test.allocate(&"x".repeat(63)).await;
        for cell in ["a", "a/nested", &long] {
            test.allocate(cell).await;
            test.start(cell, "runs", "sleep 1000").await.unwrap();
        }
        let newer = br#"{"version":9,"later":true}"#;
        test.without_engine(async |state| {
            for entry in fs::read_dir(state.join("cells/cells")).unwrap() {
                let record = entry.unwrap().path().join("cell.json");
                fs::write(record, newer).unwrap();
            }
        })
        .await;
        let reason = test.status("a").unreadable.unwrap();
        assert!(reason.contains("format version 9"), "{reason}");
        assert!(test.status("a/nested").unreadable.is_some());
        assert!(test.status("a").shim_pid.is_some());
        // Its name cannot be derived from the name of its directory.
        let taken = test.cells.allocate(name(&long), CellSpec::default()).await;
        assert!(
            matches!(taken, Err(CellError::Unreadable { .. })),
            "{taken:?}"
        );
        test.free(&long).await;
        test.free_all().await;
        test.allocate("a").await;
        assert_eq!(test.says("a", "echo again").await, "again\n");
        test.free_all().await;
    })
    .await;
}

/// A file of a state directory as an earlier build wrote it. Embedded: the tests also run on a
/// machine without the sources.
macro_rules! fixture {
    ($format:literal, $file:literal) => {
        (
            $file,
            include_bytes!(concat!("fixtures/", $format, "/", $file)).as_slice(),
        )
    };
}

macro_rules! fixtures {
    ($format:literal) => {
        [
            fixture!($format, "cells/web/cell.json"),
            fixture!($format, "cells/web.worker/cell.json"),
            fixture!($format, "executables/web_job.json"),
            fixture!($format, "executables/web_server.json"),
            fixture!($format, "executables/web.worker_ok.json"),
            fixture!($format, "told"),
        ]
    };
}

#[tokio::test]
async fn the_state_of_earlier_builds_is_adopted() {
    for (format, files) in [
        ("unversioned", fixtures!("unversioned")),
        ("v1", fixtures!("v1")),
    ] {
        let mut test = TestCells::new(&format!("format-{format}"));
        test.without_engine(async |state| {
            for (file, bytes) in files {
                let path = state.join("cells").join(file);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, bytes).unwrap();
            }
        })
        .await;
        let names: Vec<String> = test
            .cells
            .list()
            .iter()
            .map(|status| status.cell.name.to_string())
            .collect();
        assert_eq!(names, ["web", "web/worker"]);
        assert_eq!(test.status("web").unreadable, None);
        let job = test.record("web", "job");
        assert_eq!((job.runs, job.earlier.len()), (2, 1));
        let published = test.events.published();
        assert_eq!(published, [], "all of it was published before");
        // A new run continues the record.
        test.start("web", "job", "true").await.unwrap();
        assert_eq!(test.record("web", "job").runs, 3);
        test.free_all().await;
    }
}

#[tokio::test]
async fn a_crash_during_allocate_leaves_a_cell_whole_or_gone() {
    on_every_kind("half-made", async |mut test| {
        test.allocate("model").await;
        test.without_engine(async |state| {
            let cells = state.join("cells/cells");
            // A directory without record; a temporary record; a record without cgroup.
            fs::create_dir(cells.join("empty")).unwrap();
            fs::create_dir(cells.join("torn")).unwrap();
            fs::write(cells.join("torn/cell.json.new"), "{\"name\":").unwrap();
            let model = fs::read_to_string(cells.join("model/cell.json")).unwrap();
            fs::create_dir(cells.join("groupless")).unwrap();
            let record = model.replace("\"model\"", "\"groupless\"");
            fs::write(cells.join("groupless/cell.json"), record).unwrap();
        })
        .await;
        let names: Vec<String> = test
            .cells
            .list()
            .iter()
            .map(|status| status.cell.name.to_string())
            .collect();
        assert_eq!(names, ["groupless", "model"]);
        test.says("groupless", "true").await;
        for cell in ["empty", "torn"] {
            test.allocate(cell).await;
            test.says(cell, "true").await;
        }
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn a_cell_can_be_freed_after_a_crash_during_free() {
    on_every_kind("half-freed", async |mut test| {
        for cell in ["killed", "groupless", "recordless"] {
            test.allocate(cell).await;
            test.start(cell, "x", "sleep 1000").await.unwrap();
        }
        let shims: Vec<i32> = ["killed", "groupless", "recordless"]
            .map(|cell| test.status(cell).shim_pid.unwrap())
            .into();
        let group = test.group("groupless/_x");
        let outer = test.group("groupless");
        test.without_engine(async |state| {
            for shim in shims {
                kill(shim);
                until_gone(shim).await;
            }
            // Later steps: the cgroups are removed, or also the executable records.
            for group in [&group, &outer] {
                soon("the group to empty", remove(group)).await;
            }
            let cells = state.join("cells");
            fs::remove_file(cells.join("executables/recordless_x.json")).unwrap();
            // Files of a cell whose directory is missing: a Free removes it last.
            let orphan = fs::read_to_string(cells.join("executables/killed_x.json")).unwrap();
            let orphan = orphan.replace("\"killed\"", "\"gone\"");
            fs::write(cells.join("executables/gone_x.json"), orphan).unwrap();
            fs::create_dir(cells.join("logs/gone_x")).unwrap();
            fs::write(cells.join("executables/gone_y.json.new"), "{").unwrap();
        })
        .await;
        assert_eq!(test.cells.list().len(), 4);
        assert!(test.status("gone").unreadable.is_some());
        for cell in ["killed", "groupless"] {
            assert_eq!(test.ended(cell, "x").await.0, ExitStatus::Lost);
        }
        test.says("groupless", "true").await;
        test.free_all().await;
    })
    .await;
}

/// Removes a cgroup; EBUSY until its killed process has left it.
async fn remove(group: &Path) {
    while fs::remove_dir(group).is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY)) {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_foreign_cgroup_is_left_alone() {
    on_every_kind("foreign", async |test| {
        test.allocate("ours").await;
        let foreign = test.group("foreign");
        fs::create_dir(&foreign).unwrap();
        let taken = test
            .cells
            .allocate(name("foreign"), CellSpec::default())
            .await;
        assert!(
            matches!(taken, Err(CellError::ForeignCgroup { .. })),
            "{taken:?}"
        );
        assert!(foreign.is_dir());
        assert_eq!(test.cells.list().len(), 1);
        fs::remove_dir(&foreign).unwrap();
        test.allocate("foreign").await;
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn many_simultaneous_exits_without_a_daemon_are_all_published() {
    let mut test = TestCells::new("many-ends");
    test.allocate("a").await;
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("go");
    let made = Command::new("mkfifo").arg(&pipe).process_group(0).status();
    assert!(made.unwrap().success());
    let count = many(100);
    // Keeps a writer open, so that readers block until it is dropped.
    let writer = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    let script = format!("exec <{}; echo ready; cat; exit 9", pipe.display());
    let mut pids = Vec::new();
    for number in 0..count {
        let executable = format!("x{number}");
        pids.push(test.start_script("a", &executable, &script).await.pid);
        test.until_said("a", &executable, "ready").await;
    }
    test.without_engine(async |_| {
        drop(writer);
        for pid in pids {
            until_gone(pid).await;
        }
    })
    .await;
    for number in 0..count {
        let executable = format!("x{number}");
        assert_eq!(test.ended("a", &executable).await.0, ExitStatus::Exited(9));
        assert_eq!(
            test.events.ends_of(&executable, 1).await,
            [ExitStatus::Exited(9)]
        );
    }
    test.free_all().await;
}

#[tokio::test]
async fn the_output_of_an_executable_with_an_unreadable_record_stays() {
    let mut test = TestCells::new("unreadable-output");
    test.allocate("a").await;
    test.start_script("a", "x", "echo precious").await;
    test.ended("a", "x").await;
    let shim = test.status("a").shim_pid.unwrap();
    test.without_engine(async |state| {
        fs::write(state.join("cells/executables/a_x.json"), "{").unwrap();
        // Without a shim nothing else says that the log is in use.
        kill(shim);
        until_gone(shim).await;
    })
    .await;
    let status = test.status("a");
    assert!(status.executables.is_empty());
    let [(executable, reason)] = status.unreadable_executables.as_slice() else {
        panic!("{status:?}");
    };
    assert_eq!(executable.as_str(), "x");
    assert!(reason.contains("a_x.json is corrupt"), "{reason}");
    let log = fs::read_to_string(test.state().join("cells/logs/a_x/current")).unwrap();
    assert!(log.contains("precious"), "{log}");
    test.run("a", "x", "echo again").await;
    assert!(test.status("a").unreadable_executables.is_empty());
    test.free_all().await;
}

#[tokio::test]
async fn a_cell_whose_record_is_missing_is_listed_and_freed_with_its_processes() {
    for whole_directory in [false, true] {
        let mut test = TestCells::new("missing-record");
        test.allocate("a").await;
        let run = test.start("a", "x", "sleep 1000").await.unwrap();
        test.without_engine(async |state| {
            let cell = state.join("cells/cells/a");
            if whole_directory {
                fs::remove_dir_all(cell).unwrap();
            } else {
                fs::remove_file(cell.join("cell.json")).unwrap();
            }
        })
        .await;
        let status = test.status("a");
        assert!(status.unreadable.is_some());
        assert!(status.shim_pid.is_some());
        let [record] = status.executables.as_slice() else {
            panic!("{status:?}");
        };
        assert_eq!(record.run.pid, run.pid);
        test.free_all().await;
        until_gone(run.pid).await;
    }
}
