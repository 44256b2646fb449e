//! Misbehaving executables, races, and large numbers of cells.

use std::time::{Duration, Instant};

use mainstay_cells::{
    CellError, CellSpec, ExecutableSpec, ExitStatus, Limits, MemoryLimits, Namespace, StopOptions,
};
use rustix::process::{Pid, Signal, kill_process};
use tokio::task::JoinSet;

use crate::harness::{TestCells, many, name, on_every_kind, soon, until_gone};

const SOON: StopOptions = StopOptions {
    signal: None,
    grace: Some(Duration::from_millis(100)),
};
const KILLED: ExitStatus = ExitStatus::Killed {
    signal: libc::SIGKILL,
    oom_killed: false,
};

fn limited(limits: Limits) -> CellSpec {
    CellSpec {
        limits,
        ..CellSpec::default()
    }
}

fn with_pids(pids: u64) -> CellSpec {
    limited(Limits {
        pids: Some(pids),
        ..Limits::default()
    })
}

fn with_memory(max: u64) -> CellSpec {
    let memory = MemoryLimits {
        max: Some(max),
        ..MemoryLimits::default()
    };
    limited(Limits {
        memory,
        ..Limits::default()
    })
}

async fn stop(test: &TestCells, cell: &str, executable: &str, how: StopOptions) {
    let executable = Some(executable.parse().unwrap());
    let stopped = test.cells.stop(name(cell), executable, how);
    soon("the executable to end", stopped).await.unwrap();
}

#[tokio::test]
async fn a_fork_bomb_is_killed_and_affects_no_other_cell() {
    on_every_kind("bomb", async |test| {
        test.allocate_as("bomb", with_pids(20)).await;
        test.allocate("other").await;
        let bomb = "trap '' TERM; while :; do sh -c \"$0\" \"$0\" & done";
        for how in ["stop", "free"] {
            let started = test.start_as("bomb", "x", "sh", |spec| {
                spec.words = ["sh", "-c", bomb, bomb].map(str::to_owned).to_vec();
            });
            started.await.unwrap();
            // The error of a shell that cannot fork.
            test.until_said("bomb", "x", "fork").await;
            assert!(test.processes_in("bomb").len() <= 20);
            test.says("other", "true").await;
            if how == "stop" {
                stop(&test, "bomb", "x", SOON).await;
                assert_eq!(test.processes_in("bomb"), Vec::<i32>::new());
            }
        }
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn a_cell_at_its_pids_limit_refuses_starts() {
    on_every_kind("full", async |test| {
        test.allocate_as("a", with_pids(4)).await;
        test.allocate("a/inner").await;
        let script = "for each in 1 2 3; do sleep 1000 & done; echo full; wait";
        test.start_script("a", "filler", script).await;
        test.until_said("a", "filler", "full").await;
        for cell in ["a", "a/inner"] {
            let error = test.start(cell, "more", "true").await.unwrap_err();
            assert!(
                matches!(error, CellError::TooManyProcesses { .. }),
                "{error}"
            );
        }
        assert_eq!(test.processes_in("a").len(), 4);
        test.stop("a", "filler").await.unwrap();
        test.says("a", "true").await;
        test.says("a/inner", "true").await;
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn an_oom_kill_is_reported_as_oom_killed() {
    on_every_kind("memory", async |test| {
        test.allocate_as("a", with_memory(24 << 20)).await;
        test.start("a", "killed", "sleep 1000").await.unwrap();
        stop(
            &test,
            "a",
            "killed",
            StopOptions {
                grace: Some(Duration::ZERO),
                ..SOON
            },
        )
        .await;
        test.start_script("a", "greedy", "x=x; while :; do x=$x$x; done")
            .await;
        let (how, _) = test.ended("a", "greedy").await;
        let oom_killed = ExitStatus::Killed {
            signal: libc::SIGKILL,
            oom_killed: true,
        };
        assert_eq!(how, oom_killed);
        let (how, _) = test.ended("a", "killed").await;
        assert!(
            matches!(
                how,
                ExitStatus::Killed {
                    oom_killed: false,
                    ..
                }
            ),
            "{how:?}"
        );
        // The cell stays usable.
        test.says("a", "true").await;
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn an_executable_that_ignores_sigterm_is_killed_after_the_grace_period() {
    on_every_kind("deaf", async |test| {
        test.allocate("a").await;
        let script = "trap '' TERM INT; echo ready; while :; do sleep 1000; done";
        test.start_script("a", "deaf", script).await;
        test.until_said("a", "deaf", "ready").await;
        stop(&test, "a", "deaf", SOON).await;
        assert_eq!(test.ended("a", "deaf").await.0, KILLED);
        assert_eq!(test.processes_in("a"), Vec::<i32>::new());
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn an_executable_that_exits_on_the_signal_is_not_killed() {
    let test = TestCells::new("asked");
    test.allocate("a").await;
    // A process forked by the SIGTERM handler must be signalled as well.
    let script = "trap 'sleep 1000 & echo bye; exit 3' TERM
        trap 'sleep 1000 & echo other; exit 4' USR1
        echo ready; while :; do sleep 1000 & wait; done";
    for (signal, code, word) in [(None, 3, "bye"), (Some(Signal::USR1), 4, "other")] {
        test.start_script("a", "x", script).await;
        test.until_said("a", "x", "ready").await;
        let grace = Some(Duration::from_secs(10));
        stop(&test, "a", "x", StopOptions { signal, grace }).await;
        let (how, said) = test.ended("a", "x").await;
        assert_eq!(how, ExitStatus::Exited(code));
        assert_eq!(said, format!("ready\n{word}\n"));
    }
    test.free_all().await;
}

#[tokio::test]
async fn background_processes_are_killed_with_their_executable_or_cell() {
    on_every_kind("daemons", async |test| {
        test.allocate("a").await;
        let script = "(setsid sh -c '(echo below; exec sleep 1000) & exit 0' &); exit 7";
        for how in ["stop", "free"] {
            test.start_script("a", "x", script).await;
            test.until_said("a", "x", "below").await;
            let (end, _) = test.ended("a", "x").await;
            assert_eq!(end, ExitStatus::Exited(7));
            // Its parent is a session leader that is about to exit.
            for pid in test.processes_in("a") {
                let own = Pid::from_raw(pid);
                if rustix::process::getsid(own).ok() == own {
                    until_gone(pid).await;
                }
            }
            assert_eq!(test.processes_in("a").len(), 1, "it goes on");
            if how == "stop" {
                test.stop("a", "x").await.unwrap();
                assert_eq!(test.processes_in("a"), Vec::<i32>::new());
                // A later stop does not change the exit status.
                assert_eq!(test.record("a", "x").run.end.unwrap().status, end);
            }
        }
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn background_processes_stay_with_their_executable_across_a_restart() {
    let test = TestCells::new("background");
    test.allocate("a").await;
    test.start_script("a", "x", "(sleep 1000 &); exit 0").await;
    test.ended("a", "x").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    assert_eq!(test.processes_in("a").len(), 2);
    test.stop("a", "x").await.unwrap();
    assert_eq!(test.processes_in("a"), Vec::<i32>::new());
    test.free_all().await;
}

#[tokio::test]
async fn a_stopped_process_is_killed() {
    on_every_kind("held", async |test| {
        test.allocate("a").await;
        let run = test
            .start_script("a", "x", "trap '' TERM; echo ready; sleep 1000; true")
            .await;
        test.until_said("a", "x", "ready").await;
        kill_process(Pid::from_raw(run.pid).unwrap(), Signal::STOP).unwrap();
        stop(&test, "a", "x", SOON).await;
        assert_eq!(test.ended("a", "x").await.0, KILLED);
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn stop_of_a_cell_stops_all_executables_at_once_but_no_nested_cell() {
    let test = TestCells::new("all");
    test.allocate("a").await;
    test.allocate("a/b").await;
    let deaf = "trap '' TERM; echo ready; while :; do sleep 1000; done";
    for executable in ["1", "2", "3"] {
        test.start_script("a", executable, deaf).await;
        test.until_said("a", executable, "ready").await;
    }
    test.start("a/b", "x", "sleep 1000").await.unwrap();
    let how = StopOptions {
        grace: Some(Duration::from_millis(300)),
        ..SOON
    };
    let begun = Instant::now();
    soon("all to end", test.cells.stop(name("a"), None, how))
        .await
        .unwrap();
    assert!(
        begun.elapsed() >= Duration::from_millis(300),
        "they were asked first"
    );
    for executable in ["1", "2", "3"] {
        assert_eq!(test.ended("a", executable).await.0, KILLED);
    }
    assert!(test.record("a/b", "x").run.is_running());
    test.free_all().await;
}

#[tokio::test]
async fn free_removes_nested_cells_and_no_siblings() {
    on_every_kind("nested", async |test| {
        let cells = ["a", "a/b", "a/b/c", "ab", "a-b"];
        for cell in cells {
            test.allocate(cell).await;
            test.start(cell, "x", "sleep 1000").await.unwrap();
        }
        test.free("a").await;
        let left: Vec<String> = test
            .cells
            .list()
            .iter()
            .map(|s| s.cell.name.to_string())
            .collect();
        assert_eq!(left, ["a-b", "ab"]);
        for cell in ["ab", "a-b"] {
            assert!(test.record(cell, "x").run.is_running());
            assert_eq!(test.processes_in(cell).len(), 1);
        }
        // The names can be allocated again.
        test.allocate("a").await;
        test.says("a", "true").await;
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn a_nested_cell_is_limited_beside_executables_of_its_parent() {
    on_every_kind("beside", async |test| {
        test.allocate("a").await;
        test.start("a", "before", "sleep 1000").await.unwrap();
        test.allocate_as("a/b", with_pids(2)).await;
        test.start("a", "after", "sleep 1000").await.unwrap();
        test.start_script("a/b", "x", "sleep 1000 & echo full; wait")
            .await;
        test.until_said("a/b", "x", "full").await;
        let error = test.start("a/b", "y", "true").await.unwrap_err();
        assert!(
            matches!(error, CellError::TooManyProcesses { .. }),
            "{error}"
        );
        test.says("a", "true").await;
        assert_eq!(test.processes_in("a").len(), 4);
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn the_longest_and_unusual_names_work() {
    let test = TestCells::new("names");
    let label = "Z".repeat(63);
    let mut cell = String::new();
    for _ in 0..16 {
        cell = if cell.is_empty() {
            label.clone()
        } else {
            format!("{cell}/{label}")
        };
        test.allocate(&cell).await;
    }
    let executable = "x".repeat(63);
    let (how, said) = test.run(&cell, &executable, "hostname").await;
    assert_eq!((how, said), (ExitStatus::Exited(0), format!("{label}\n")));
    for executable in [
        "a.json",
        "b.json.new",
        "cell.json",
        "current",
        "0",
        "a__b",
        "a..b",
    ] {
        let (how, said) = test.run(&label, executable, "echo x").await;
        assert_eq!(
            (how, said.as_str()),
            (ExitStatus::Exited(0), "x\n"),
            "{executable}"
        );
    }
    test.free_all().await;
}

#[tokio::test]
async fn a_name_of_a_cgroup_file_is_refused_or_works() {
    on_every_kind("tasks", async |test| {
        for spec in [CellSpec::default(), with_pids(9)] {
            match test.cells.allocate(name("tasks"), spec).await {
                Ok(_) => assert_eq!(test.says("tasks", "echo x").await, "x\n"),
                Err(error) => assert!(error.to_string().contains("tasks"), "{error}"),
            }
            test.free_all().await;
        }
    })
    .await;
}

#[tokio::test]
async fn runs_are_distinguished_in_one_log() {
    let test = TestCells::new("runs");
    test.allocate("a").await;
    let mut pids = Vec::new();
    for word in ["one", "two", "three"] {
        let run = test.start("a", "x", &format!("echo {word}")).await.unwrap();
        pids.push(run.pid);
        let (_, said) = test.ended("a", "x").await;
        assert_eq!(said, format!("{word}\n"));
    }
    let record = test.record("a", "x");
    assert_eq!((record.runs, record.earlier.len()), (3, 2));
    for (pid, word) in pids.iter().zip(["one", "two", "three"]) {
        let found = test.cells.find_run(*pid).unwrap();
        let run = test.cells.until_ended(&found).await;
        let query = mainstay_journal::LogQuery {
            since: Some(run.started()),
            until: Some(mainstay_journal::Timestamp::from_nanos(run.end.unwrap().at)),
            ..mainstay_journal::LogQuery::default()
        };
        let mut log = test.log("a", "x", query).await;
        let mut text = Vec::new();
        while let Some(chunk) = log.next().await.unwrap() {
            chunk.append_text(&mut text);
        }
        assert_eq!(String::from_utf8(text).unwrap(), format!("{word}\n"));
    }
    test.free_all().await;
}

#[tokio::test]
async fn waiting_for_a_run_does_not_wait_for_the_next() {
    let test = TestCells::new("next-run");
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let first = test.found("a", "x");
    let mut end = std::pin::pin!(test.cells.until_ended(&first));
    tokio::select! {
        biased;
        run = &mut end => panic!("it runs: {run:?}"),
        () = std::future::ready(()) => {}
    }
    test.stop("a", "x").await.unwrap();
    test.start("a", "x", "sleep 1000").await.unwrap();
    let run = soon("the end of the first run", end).await;
    assert_eq!(run.started, first.run.started);
    assert!(run.end.is_some());
    test.free_all().await;
}

#[tokio::test]
async fn waiting_for_a_run_ends_with_its_cell() {
    let test = TestCells::new("gone");
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let found = test.found("a", "x");
    let (run, freed) = tokio::join!(
        soon("its end", test.cells.until_ended(&found)),
        test.cells.free(name("a"))
    );
    freed.unwrap();
    let killed = ExitStatus::Killed {
        signal: 9,
        oom_killed: false,
    };
    assert_eq!(run.end.map(|end| end.status), Some(killed));
    assert_eq!(test.events.ends_of("x", 1).await, [killed]);
    test.free_all().await;
}

#[tokio::test]
async fn one_of_many_concurrent_callers_wins() {
    let test = TestCells::new("same");
    let mut allocating = JoinSet::new();
    for _ in 0..20 {
        let cells = test.cells.clone();
        allocating.spawn(async move { cells.allocate(name("a"), CellSpec::default()).await });
    }
    let made = allocating.join_all().await;
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    let mut starting = JoinSet::new();
    for _ in 0..20 {
        let cells = test.cells.clone();
        starting.spawn(async move {
            cells
                .start(name("a"), "x".parse().unwrap(), sleeper())
                .await
        });
    }
    let started = starting.join_all().await;
    assert_eq!(started.iter().filter(|started| started.is_ok()).count(), 1);
    assert_eq!(test.processes_in("a").len(), 1);
    test.free_all().await;
}

fn sleeper() -> ExecutableSpec {
    ExecutableSpec {
        words: vec!["sleep".to_owned(), "1000".to_owned()],
        ..ExecutableSpec::default()
    }
}

/// In whichever order the calls run, nothing unknown to the engine is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_allocate_start_and_free_leave_nothing() {
    let test = TestCells::new("at-once");
    for _ in 0..many(40) {
        let mut work = JoinSet::new();
        for part in 0..8 {
            let cells = test.cells.clone();
            work.spawn(async move {
                let (outer, inner) = (name("a"), name("a/b"));
                match part % 4 {
                    0 => drop(cells.allocate(outer, CellSpec::default()).await),
                    1 => drop(cells.allocate(inner, CellSpec::default()).await),
                    2 => drop(cells.start(outer, "x".parse().unwrap(), sleeper()).await),
                    _ => drop(cells.free(outer).await),
                }
            });
        }
        soon("all of it", work.join_all()).await;
    }
    test.free_all().await;
}

/// The callers are cancelled, and the runtime of their work is dropped.
#[test]
fn cancelled_work_is_complete_or_undone_after_a_restart() {
    let mut test = TestCells::new("broken-off");
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_all().build().unwrap()
    };
    let at_once = Duration::ZERO;
    for _ in 0..many(30) {
        let broken = runtime();
        broken.block_on(async {
            let asked = test.cells.allocate(name("a"), CellSpec::default());
            let _ = tokio::time::timeout(at_once, asked).await;
            let asked = test.cells.start(name("a"), "x".parse().unwrap(), sleeper());
            let _ = tokio::time::timeout(at_once, asked).await;
            let _ = tokio::time::timeout(at_once, test.cells.free(name("a"))).await;
        });
        drop(broken);
        test.again();
        let found = test.cells.list().into_iter().find_map(|status| {
            let record = status.executables.into_iter().next()?;
            test.cells.find_run(record.run.pid)
        });
        // A run that has ended is known to have.
        if let Some(found) = found.filter(|_| test.processes_in("a").is_empty()) {
            let end = async { soon("the end", test.cells.until_ended(&found)).await };
            assert!(runtime().block_on(end).end.is_some());
        }
    }
    runtime().block_on(test.free_all());
}

#[tokio::test]
async fn thousands_of_short_runs_leave_nothing() {
    let test = TestCells::new("in-a-row");
    test.allocate("a").await;
    let runs = many(2000);
    for _ in 0..runs {
        let run = test.start("a", "x", "/bin/true").await.unwrap();
        let found = test.cells.find_run(run.pid).unwrap();
        let run = soon("its end", test.cells.until_ended(&found)).await;
        assert_eq!(run.end.unwrap().status, ExitStatus::Exited(0));
    }
    let record = test.record("a", "x");
    assert_eq!(record.runs, runs as u64);
    let shim = test.status("a").shim_pid.unwrap();
    let open = std::fs::read_dir(format!("/proc/{shim}/fd"))
        .unwrap()
        .count();
    assert!(open < 30, "{open} descriptors in the shim");
    assert_eq!(test.events.ends_of("x", runs).await.len(), runs);
    test.free_all().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundreds_of_cells_run_concurrently() {
    on_every_kind("hundreds", async |test| {
        let count = many(200);
        let mut work = JoinSet::new();
        for number in 0..count {
            let cells = test.cells.clone();
            work.spawn(async move {
                let cell = name(&format!("c{number}"));
                cells
                    .allocate(cell.clone(), CellSpec::default())
                    .await
                    .unwrap();
                cells
                    .start(cell, "x".parse().unwrap(), sleeper())
                    .await
                    .unwrap();
            });
        }
        soon("all to start", work.join_all()).await;
        let list = test.cells.list();
        assert_eq!(list.len(), count);
        let running = |status: &mainstay_cells::CellStatus| status.executables[0].run.is_running();
        assert!(list.iter().all(running));
        let mut work = JoinSet::new();
        for number in 0..count {
            let cells = test.cells.clone();
            work.spawn(async move { cells.free(name(&format!("c{number}"))).await.unwrap() });
        }
        soon("all to go", work.join_all()).await;
        test.free_all().await;
    })
    .await;
}

#[tokio::test]
async fn the_zygote_is_restarted_when_it_exits() {
    let test = TestCells::new("zygote");
    test.allocate("a").await;
    test.start("a", "x", "sleep 1000").await.unwrap();
    let shim = test.status("a").shim_pid.unwrap();
    let status = std::fs::read_to_string(format!("/proc/{shim}/status")).unwrap();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:\t"))
        .unwrap();
    kill_process(
        Pid::from_raw(parent.parse().unwrap()).unwrap(),
        Signal::KILL,
    )
    .unwrap();
    test.allocate("b").await;
    test.says("b", "true").await;
    assert!(test.record("a", "x").run.is_running());
    test.says("a", "true").await;
    test.free_all().await;
}

#[tokio::test]
async fn executables_that_share_the_host_pid_namespace_are_killed_too() {
    on_every_kind("shared-pid", async |test| {
        let spec = CellSpec {
            share: [Namespace::Pid, Namespace::Mount].into(),
            ..CellSpec::default()
        };
        test.allocate_as("a", spec).await;
        let script = "(setsid sleep 1000 &); echo below; exec sleep 1000";
        test.start_script("a", "x", script).await;
        test.until_said("a", "x", "below").await;
        test.stop("a", "x").await.unwrap();
        assert_eq!(test.processes_in("a"), Vec::<i32>::new());
        test.start_script("a", "x", script).await;
        test.until_said("a", "x", "below").await;
        test.free_all().await;
    })
    .await;
}
