//! Schedules: executables that are kept running, and timers.

use std::ops::Deref;
use std::time::Duration;

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::machine::{EventsRequest, ServiceStateEvent};
use mainstay_api::runtime::Executable;
use mainstay_api::schedule::schedule_service_client::ScheduleServiceClient;
use mainstay_api::schedule::{
    DestroyRequest, DisableRequest, EnableRequest, RunRequest, Schedule, ScheduleStatus, Timer,
};
use mainstay_api::{Reply, event};
use mainstay_identity::Role;
use mainstay_testkit::{Sweeper, TestNode, require, soon};
use rustix::process::{Pid, Signal, kill_process, test_kill_process};
use tonic::transport::Channel;
use tonic::{Code, Status};

/// A node whose cells and services are gone with it.
struct CellNode {
    node: TestNode,
    // Declared last: cells outlive their node.
    sweeper: Sweeper,
}

impl CellNode {
    fn start() -> Self {
        Self::configured("")
    }

    fn configured(sections: &str) -> Self {
        let sweeper = Sweeper::start("e2e-schedule");
        // The cgroup of services is beside that of cells.
        let cgroup = format!("{}/cells", sweeper.cgroup());
        let config = format!("[cells]\ncgroup = {cgroup:?}\n{sections}");
        let node = TestNode::builder().config(&config).start();
        Self { node, sweeper }
    }

    fn restart(self) -> Self {
        Self {
            node: self.node.restart(),
            sweeper: self.sweeper,
        }
    }
}

impl Deref for CellNode {
    type Target = TestNode;

    fn deref(&self) -> &TestNode {
        &self.node
    }
}

async fn client(node: &TestNode) -> ScheduleServiceClient<Channel> {
    ScheduleServiceClient::new(node.connect_locally().await)
}

/// A schedule of a command in a cell `jobs` that is allocated when it is needed.
fn program(name: &str, command: &str) -> Schedule {
    Schedule {
        name: name.to_owned(),
        executable: Some(Executable {
            cell_name: "jobs".to_owned(),
            command: command.to_owned(),
            ..Executable::default()
        }),
        allocate: true,
        ..Schedule::default()
    }
}

fn every(time: Duration) -> Timer {
    Timer {
        interval: Some(time.try_into().unwrap()),
        ..Timer::default()
    }
}

/// No test waits for it.
fn yearly() -> Timer {
    Timer {
        calendar: "yearly".to_owned(),
        ..Timer::default()
    }
}

async fn enable(node: &TestNode, schedule: Schedule) -> Result<ScheduleStatus, Status> {
    let request = EnableRequest {
        schedule: Some(schedule),
    };
    let answer = client(node).await.enable(request).await?;
    Ok(answer.into_inner().messages.remove(0).schedule.unwrap())
}

async fn disable(node: &TestNode, name: &str) -> Result<ScheduleStatus, Status> {
    let name = name.to_owned();
    let answer = client(node).await.disable(DisableRequest { name }).await?;
    Ok(answer.into_inner().messages.remove(0).schedule.unwrap())
}

async fn destroy(node: &TestNode, name: &str) -> Result<(), Status> {
    let name = name.to_owned();
    client(node).await.destroy(DestroyRequest { name }).await?;
    Ok(())
}

async fn run(node: &TestNode, name: &str) -> Result<(), Status> {
    let name = name.to_owned();
    client(node).await.run(RunRequest { name }).await?;
    Ok(())
}

async fn enabled(node: &TestNode) -> Vec<ScheduleStatus> {
    let answer = client(node).await.show_enabled(()).await.unwrap();
    answer.into_inner().into_messages().remove(0).schedules
}

async fn disabled(node: &TestNode) -> Vec<ScheduleStatus> {
    let answer = client(node).await.show_disabled(()).await.unwrap();
    answer.into_inner().into_messages().remove(0).schedules
}

/// Waits until the schedule has had this many events that contain `text`, and returns the last.
async fn event(node: &TestNode, name: &str, text: &str, count: usize) -> String {
    let mut client = MachineServiceClient::new(node.connect_locally().await);
    let all = EventsRequest {
        tail_events: -1,
        ..EventsRequest::default()
    };
    let mut events = client.events(all).await.unwrap().into_inner();
    let service = format!("schedule/{name}");
    let mut seen = 0;
    soon(&format!("event {count} of {service}: {text}"), async {
        loop {
            let event = events.message().await.unwrap().expect("the stream goes on");
            let Some(data) = event.data else { continue };
            let Ok(state) = event::unpack::<ServiceStateEvent>(&data) else {
                continue;
            };
            if state.service == service && state.message.contains(text) {
                seen += 1;
                if seen == count {
                    return state.message;
                }
            }
        }
    })
    .await
}

fn pid(message: &str) -> Pid {
    let number = message.rsplit(' ').next().unwrap().parse().unwrap();
    Pid::from_raw(number).unwrap()
}

fn is_running(pid: Pid) -> bool {
    test_kill_process(pid).is_ok()
}

#[tokio::test]
async fn an_enabled_executable_is_started_whenever_it_is_not_running() {
    require!(Root);
    let node = CellNode::start();
    let status = enable(&node, program("web", "sleep 1000")).await.unwrap();
    assert!(status.enabled && status.next.is_none());
    let first = pid(&event(&node, "web", "started with pid", 1).await);
    kill_process(first, Signal::KILL).unwrap();
    let second = pid(&event(&node, "web", "started with pid", 2).await);
    assert_ne!(first, second);
    assert!(is_running(second));
    let seen = enabled(&node).await.remove(0);
    assert!(seen.running);
    assert_eq!(seen.runs[0].pid, second.as_raw_nonzero().get());
    assert_eq!(seen.runs[1].result, "killed with signal 9");
    destroy(&node, "web").await.unwrap();
    assert!(!is_running(second), "destroy stops it");
    assert!(enabled(&node).await.is_empty());
    assert_eq!(
        destroy(&node, "web").await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn schedules_survive_the_daemon() {
    require!(Root);
    let mut node = CellNode::start();
    enable(&node, program("web", "sleep 1000")).await.unwrap();
    enable(&node, program("down", "sleep 1000")).await.unwrap();
    let web = pid(&event(&node, "web", "started with pid", 1).await);
    let down = pid(&event(&node, "down", "started with pid", 1).await);
    node.node.kill();
    kill_process(down, Signal::KILL).unwrap();
    let node = node.restart();
    // What ran on is taken over, what ended meanwhile is reported and started again.
    let again = pid(&event(&node, "down", "started with pid", 2).await);
    assert_ne!(again, down);
    let seen = enabled(&node).await;
    assert_eq!(seen.len(), 2);
    assert_eq!(seen[0].runs[1].result, "killed with signal 9");
    assert!(seen[1].running && is_running(web));
    assert_eq!(seen[1].runs.len(), 1, "not started again");
    destroy(&node, "web").await.unwrap();
    assert!(!is_running(web));
}

#[tokio::test]
async fn a_disabled_schedule_starts_nothing_until_it_is_resumed() {
    require!(Root);
    let node = CellNode::start();
    enable(&node, program("web", "sleep 1000")).await.unwrap();
    let first = pid(&event(&node, "web", "started with pid", 1).await);
    let seen = disable(&node, "web").await.unwrap();
    assert!(!seen.enabled && is_running(first), "it runs on");
    kill_process(first, Signal::KILL).unwrap();
    event(&node, "web", "killed with signal 9", 1).await;
    let node = node.restart();
    assert!(enabled(&node).await.is_empty());
    let seen = disabled(&node).await.remove(0);
    assert!(!seen.running);
    let only_name = Schedule {
        name: "web".to_owned(),
        ..Schedule::default()
    };
    enable(&node, only_name).await.unwrap();
    let second = pid(&event(&node, "web", "started with pid", 2).await);
    assert!(is_running(second));
    destroy(&node, "web").await.unwrap();
}

#[tokio::test]
async fn what_cannot_start_is_tried_again_and_the_reason_shown() {
    require!(Root);
    let node = CellNode::start();
    enable(&node, program("broken", "/no/such/program"))
        .await
        .unwrap();
    let message = event(&node, "broken", "not started", 3).await;
    assert!(message.contains("/no/such/program"), "{message}");
    let mut without_cell = program("lost", "sleep 1");
    without_cell.executable.as_mut().unwrap().cell_name = "nowhere".to_owned();
    without_cell.allocate = false;
    enable(&node, without_cell).await.unwrap();
    let message = event(&node, "lost", "not started", 2).await;
    assert!(message.contains("cell nowhere does not exist"), "{message}");
}

#[tokio::test]
async fn an_interval_runs_again_and_again_and_never_twice_at_once() {
    require!(Root);
    let node = CellNode::start();
    let second = Duration::from_secs(1);
    let short = Schedule {
        timer: Some(every(second)),
        ..program("short", "sh -c 'echo ran; exit 3'")
    };
    let status = enable(&node, short).await.unwrap();
    assert!(status.next.is_some());
    let long = Schedule {
        timer: Some(every(second)),
        ..program("long", "sleep 1000")
    };
    enable(&node, long).await.unwrap();
    event(&node, "short", "exited with code 3", 2).await;
    event(&node, "long", "run skipped", 1).await;
    let seen = enabled(&node).await;
    assert_eq!(seen[0].runs.len(), 1, "one run goes on");
    assert!(seen[0].skipped >= 1);
    assert!(!seen[1].runs.last().unwrap().succeeded);
    let output = node.cli().run(["cell", "logs", "jobs", "short"]).ok();
    assert!(output.lines().count() >= 2, "{output}");
    destroy(&node, "long").await.unwrap();
}

#[tokio::test]
async fn a_run_is_stopped_after_its_timeout() {
    require!(Root);
    let node = CellNode::start();
    let timer = Timer {
        timeout: Some(second()),
        ..yearly()
    };
    let job = Schedule {
        timer: Some(timer),
        ..program("job", "sleep 1000")
    };
    enable(&node, job).await.unwrap();
    run(&node, "job").await.unwrap();
    let process = pid(&event(&node, "job", "started with pid", 1).await);
    assert_eq!(
        run(&node, "job").await.unwrap_err().code(),
        Code::FailedPrecondition
    );
    event(
        &node,
        "job",
        "stopped after the timeout of 1s: killed with signal 15",
        1,
    )
    .await;
    assert!(!is_running(process));
}

fn second() -> prost_types::Duration {
    prost_types::Duration {
        seconds: 1,
        nanos: 0,
    }
}

#[tokio::test]
async fn missed_runs_are_made_up_for_if_asked() {
    require!(Root);
    let mut node = CellNode::start();
    for (name, catch_up) in [("made-up", true), ("left-out", false)] {
        let timer = Timer {
            catch_up,
            ..yearly()
        };
        let job = Schedule {
            timer: Some(timer),
            ..program(name, "true")
        };
        enable(&node, job).await.unwrap();
    }
    node.node.kill();
    // As if the node had been down since 1970.
    for name in ["made-up", "left-out"] {
        let path = node.state().join(format!("schedule/{name}.json"));
        let text = std::fs::read_to_string(&path).unwrap();
        let mut record: serde_json::Value = serde_json::from_str(&text).unwrap();
        record["considered"] = 0.into();
        std::fs::write(&path, record.to_string()).unwrap();
    }
    let node = node.restart();
    event(&node, "made-up", "run missed; made up for now", 1).await;
    event(&node, "made-up", "exited with code 0", 1).await;
    event(&node, "left-out", "run missed", 1).await;
    let seen = enabled(&node).await;
    assert_eq!((seen[0].missed, seen[0].runs.len()), (1, 0), "{seen:?}");
    assert_eq!((seen[1].missed, seen[1].runs.len()), (1, 1), "{seen:?}");
    // Once, however long it was.
    let node = node.restart();
    assert_eq!(enabled(&node).await[1].missed, 1);
}

#[tokio::test]
async fn a_timer_starts_a_service() {
    require!(Root);
    let node = CellNode::configured(
        "[services.rotate]\ncommand = 'sh -c \"echo rotated\"'\nrestart = 'never'\nenabled = false\n",
    );
    let job = Schedule {
        name: "rotate".to_owned(),
        service: "rotate".to_owned(),
        timer: Some(yearly()),
        ..Schedule::default()
    };
    enable(&node, job.clone()).await.unwrap();
    run(&node, "rotate").await.unwrap();
    event(&node, "rotate", "service started", 1).await;
    let missing = Schedule {
        service: "nothing".to_owned(),
        ..job
    };
    assert_eq!(
        enable(&node, missing).await.unwrap_err().code(),
        Code::NotFound
    );
}

#[tokio::test]
async fn bad_schedules_are_refused_with_the_reason() {
    require!(Root);
    let node = CellNode::start();
    let timed = |timer| Schedule {
        timer: Some(timer),
        ..program("x", "true")
    };
    let calendar = |text: &str| Timer {
        calendar: text.to_owned(),
        ..Timer::default()
    };
    let wire = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
    for (schedule, code, words) in [
        (Schedule::default(), Code::InvalidArgument, "schedule name"),
        (
            program("a/b", "true"),
            Code::InvalidArgument,
            "schedule name",
        ),
        (
            program(&"x".repeat(64), "true"),
            Code::InvalidArgument,
            "schedule name",
        ),
        (
            program("x", ""),
            Code::InvalidArgument,
            "command is missing",
        ),
        (program("x", "a 'b"), Code::InvalidArgument, "quote"),
        (
            program("x", &"y".repeat(200_000)),
            Code::InvalidArgument,
            "maximum is 131072",
        ),
        (
            timed(Timer::default()),
            Code::InvalidArgument,
            "neither a calendar",
        ),
        (timed(calendar("25:00")), Code::InvalidArgument, "hour"),
        (
            timed(calendar("2020-01-01")),
            Code::InvalidArgument,
            "60 years",
        ),
        (
            timed(calendar(&"1,".repeat(1_000_000))),
            Code::InvalidArgument,
            "longer than",
        ),
        (
            timed(Timer {
                interval: wire(0, 0),
                ..Timer::default()
            }),
            Code::InvalidArgument,
            "minimum is 1s",
        ),
        (
            timed(Timer {
                interval: wire(-1, 0),
                ..Timer::default()
            }),
            Code::InvalidArgument,
            "negative",
        ),
        (
            timed(Timer {
                interval: wire(i64::MAX, 0),
                ..Timer::default()
            }),
            Code::InvalidArgument,
            "10 years",
        ),
        (
            timed(Timer {
                jitter: wire(i64::MAX, 0),
                ..yearly()
            }),
            Code::InvalidArgument,
            "jitter",
        ),
        (
            timed(Timer {
                timeout: wire(0, 0),
                ..yearly()
            }),
            Code::InvalidArgument,
            "timeout is 0",
        ),
        (
            timed(Timer {
                time_zone: "Nowhere/City".to_owned(),
                ..yearly()
            }),
            Code::InvalidArgument,
            "time zone",
        ),
        (
            timed(Timer {
                interval: wire(5, 0),
                ..yearly()
            }),
            Code::InvalidArgument,
            "both",
        ),
        (
            Schedule {
                service: "s".to_owned(),
                ..program("x", "true")
            },
            Code::InvalidArgument,
            "both",
        ),
        (
            Schedule {
                name: "x".to_owned(),
                service: "s".to_owned(),
                ..Schedule::default()
            },
            Code::InvalidArgument,
            "needs a timer",
        ),
        (
            Schedule {
                name: "gone".to_owned(),
                ..Schedule::default()
            },
            Code::NotFound,
            "not found",
        ),
    ] {
        let refused = enable(&node, schedule).await.unwrap_err();
        assert_eq!(refused.code(), code, "{refused}");
        assert!(refused.message().contains(words), "{words}: {refused}");
    }
    assert_eq!(run(&node, "gone").await.unwrap_err().code(), Code::NotFound);
    assert!(enabled(&node).await.is_empty());
}

#[tokio::test]
async fn the_number_of_schedules_is_limited() {
    require!(Root);
    let node = CellNode::start();
    let numbered = |number: usize| Schedule {
        timer: Some(yearly()),
        ..program(&format!("job-{number}"), "true")
    };
    for number in 0..256 {
        enable(&node, numbered(number)).await.unwrap();
    }
    let refused = enable(&node, numbered(256)).await.unwrap_err();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    enable(&node, numbered(0))
        .await
        .expect("replacing one is no new one");
    destroy(&node, "job-7").await.unwrap();
    enable(&node, numbered(256)).await.unwrap();
}

#[tokio::test]
async fn readers_see_schedules_without_the_values_of_variables() {
    require!(Root);
    let node = CellNode::start();
    let mut job = program("job", "true");
    job.timer = Some(yearly());
    job.executable.as_mut().unwrap().environment = vec!["TOKEN=hunter2".to_owned()];
    enable(&node, job).await.unwrap();
    let reader = node.credentials("reader", &[Role::Reader]);
    let mut client = ScheduleServiceClient::new(node.connect_as(&reader).await);
    let shown = client.show_enabled(()).await.unwrap().into_inner();
    let shown = format!("{shown:?}");
    assert!(
        shown.contains("TOKEN=(redacted)") && !shown.contains("hunter2"),
        "{shown}"
    );
    let name = "job".to_owned();
    let refused = client.run(RunRequest { name }).await.unwrap_err();
    assert_eq!(refused.code(), Code::PermissionDenied);
}

#[tokio::test]
async fn a_damaged_record_hides_no_other() {
    require!(Root);
    let node = CellNode::start();
    for name in ["good", "bad"] {
        let job = Schedule {
            timer: Some(yearly()),
            ..program(name, "true")
        };
        enable(&node, job).await.unwrap();
    }
    let path = node.state().join("schedule/bad.json");
    std::fs::write(&path, "{").unwrap();
    let node = node.restart();
    assert_eq!(enabled(&node).await.len(), 1);
    node.wait_for_log("schedule ignored");
    assert!(path.exists(), "for somebody to look at");
}

#[test]
fn the_command_line_enables_lists_shows_and_destroys() {
    require!(Root);
    let node = CellNode::start();
    let cli = |arguments: &[&str]| node.cli().run([&["schedule"], arguments].concat());
    let timer = [
        "add-timer",
        "backup",
        "--calendar",
        "Mon..Fri 02:30",
        "--jitter",
        "5m",
    ];
    let program = ["--cell", "jobs", "--allocate", "--", "sh", "-c", "exit 3"];
    let said = cli(&[&timer[..], &program].concat()).ok();
    assert!(
        said.starts_with("schedule \"backup\" enabled, next run 2"),
        "{said}"
    );
    assert_eq!(
        cli(&["disable", "backup"]).ok(),
        "schedule \"backup\" disabled\n"
    );
    let table = cli(&["list"]).ok();
    assert!(
        table.contains("disabled") && table.contains("Mon..Fri 02:30"),
        "{table}"
    );
    cli(&["enable", "backup"]).ok();
    let shown = cli(&["show", "backup"]).ok();
    assert!(shown.contains("command:  sh -c 'exit 3'"), "{shown}");
    assert!(shown.contains("jitter:   5m"), "{shown}");
    let json = cli(&["list", "-o", "json"]).json();
    assert_eq!(json[0]["schedule"]["name"], "backup");
    assert!(cli(&["show", "nothing"]).failed(6).contains("not found"));
    assert!(cli(&["run", "nothing"]).failed(6).contains("not found"));
    cli(&["add-timer", "x", "--", "true"]).failed(2);
    assert_eq!(
        cli(&["destroy", "backup"]).ok(),
        "schedule \"backup\" destroyed\n"
    );
    let times = cli(&["calendar", "*-01-01", "--count", "2"]).ok();
    assert_eq!(times.lines().count(), 2, "{times}");
    assert!(times.contains("-01-01 00:00:00 UTC"), "{times}");
    assert!(cli(&["calendar", "25:00"]).failed(2).contains("hour"));
}
