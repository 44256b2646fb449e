//! Services that misbehave.

use std::time::Duration;

use mainstay_testkit::require;

use super::service_node::{ServiceNode, is_healthy, message, messages, processes_with};

#[tokio::test]
async fn a_crash_loop_backs_off_and_others_do_not_notice() {
    require!(Root);
    let node = ServiceNode::start(
        "services-crash",
        "[services.crash]\ncommand = 'sh -c \"exit 7\"'\n\
         back_off = { initial = '5ms', max = '20ms' }\n\
         [services.missing]\ncommand = '/no/such/program'\nback_off = { initial = '1h', max = '1h' }\n\
         [services.web]\ncommand = ['sleep', '74001']\n",
    );
    let crash = node
        .until("crash", |crash| {
            let wanted = [
                "restart in 5ms (attempt 2)",
                "restart in 10ms (attempt 3)",
                "restart in 20ms (attempt 5)",
            ];
            let seen = messages(crash);
            wanted
                .iter()
                .all(|end| seen.iter().any(|text| text.ends_with(end)))
        })
        .await;
    assert!(
        messages(&crash)
            .iter()
            .any(|text| text.starts_with("exited with code 7;"))
    );
    let missing = node.until_state("missing", "Waiting").await;
    assert!(
        message(&missing).contains("/no/such/program: no such file or directory"),
        "{missing:?}"
    );
    node.until_state("web", "Running").await;
    node.stop_service("crash").await.unwrap();
    let crash = node.service("crash").await;
    assert_eq!(crash.state, "Finished");
    // The history has its bound however long the loop went on.
    assert!(crash.events.unwrap().events.len() <= 64);
}

#[tokio::test]
async fn a_service_that_never_gets_healthy_holds_back_what_requires_it() {
    require!(Root);
    let node = ServiceNode::start(
        "services-unhealthy",
        "[services.stuck]\ncommand = ['sleep', '74011']\n\
         health = { exec = ['sleep', '74012'], delay = '1ms', period = '10ms', timeout = '50ms' }\n\
         [services.app]\ncommand = ['sleep', '74013']\nrequires = ['stuck']\n",
    );
    let stuck = node
        .until("stuck", |stuck| {
            message(stuck) == "health check failed: timed out after 50ms"
        })
        .await;
    assert_eq!(stuck.state, "Running");
    let health = stuck.health.unwrap();
    assert_eq!((health.unknown, health.healthy), (false, false));
    assert_eq!(health.last_message, "timed out after 50ms");
    assert!(health.last_change.is_some());
    let app = node.service("app").await;
    assert_eq!(
        (app.state.as_str(), message(&app)),
        ("Waiting", "waiting for stuck (not healthy)")
    );
    // The node still stops it, and its check with it.
    node.stop_service("stuck").await.unwrap();
    assert!(processes_with("74011").is_empty());
}

#[tokio::test]
async fn health_follows_the_check() {
    require!(Root);
    let node = ServiceNode::start_with("services-health", |scratch| {
        let file = scratch.join("healthy");
        std::fs::write(&file, "").unwrap();
        format!(
            "[services.web]\ncommand = ['sleep', '74021']\n\
             health = {{ exec = ['test', '-e', {file:?}], delay = '1ms', period = '10ms', timeout = '10s' }}\n"
        )
    });
    node.until("web", is_healthy).await;
    std::fs::remove_file(node.node.scratch().join("healthy")).unwrap();
    let web = node.until("web", |web| !is_healthy(web)).await;
    assert_eq!(
        message(&web),
        "health check failed: test exited with code 1"
    );
    std::fs::write(node.node.scratch().join("healthy"), "").unwrap();
    node.until("web", is_healthy).await;
}

#[tokio::test]
async fn a_service_that_ignores_its_signal_is_killed_after_its_grace() {
    require!(Root);
    let node = ServiceNode::start(
        "services-ignores",
        "[services.deaf]\ncommand = \"sh -c 'trap : TERM; echo deaf; while :; do sleep 74031; done'\"\n\
         stop_grace = '50ms'\n\
         [services.int]\ncommand = \"sh -c 'trap \\\"echo bye; exit 0\\\" INT; echo ready; while :; do sleep 0.01; done'\"\n\
         stop_signal = 'SIGINT'\n",
    );
    node.until_line("deaf", "deaf").await;
    node.stop_service("deaf").await.unwrap();
    assert!(processes_with("74031").is_empty());
    let deaf = node.service("deaf").await;
    assert_eq!(message(&deaf), "stopped: killed with signal 9");
    node.until_line("int", "ready").await;
    node.stop_service("int").await.unwrap();
    node.until_line("int", "bye").await;
    assert_eq!(
        message(&node.service("int").await),
        "stopped: exited with code 0"
    );
}

#[tokio::test]
async fn a_service_that_fills_its_log_keeps_to_its_sizes() {
    require!(Root);
    let node = ServiceNode::start(
        "services-log",
        "[services.loud]\ncommand = \"sh -c 'yes $(printf %01000d 0) | head -n 5000; echo done; exec sleep 74041'\"\n\
         log_file_size = '64KiB'\nlog_total_size = '256KiB'\n",
    );
    node.until_line("loud", "done").await;
    let logs = node.node.state().join("services/cells/logs");
    let logs = std::fs::read_dir(logs).unwrap().flatten();
    let files = logs.flat_map(|log| std::fs::read_dir(log.path()).unwrap().flatten());
    let sizes = files.map(|file| file.metadata().unwrap());
    let total: u64 = sizes
        .filter(|file| file.is_file())
        .map(|file| file.len())
        .sum();
    // Each file and the whole may exceed its size by what is read at once.
    assert!(total <= 1 << 20, "{total}");
}

#[tokio::test]
async fn a_service_that_forks_away_is_ended_and_told() {
    require!(Root);
    let node = ServiceNode::start(
        "services-forks",
        "[services.daemon]\ncommand = \"sh -c 'setsid sleep 74051 & exit 0'\"\n\
         restart = 'never'\n",
    );
    let daemon = node.until_state("daemon", "Finished").await;
    assert!(
        message(&daemon).ends_with("processes that it left behind, run it in the foreground"),
        "{daemon:?}"
    );
    assert!(processes_with("74051").is_empty());
}

#[tokio::test]
async fn a_shim_that_is_killed_takes_its_services_along_and_they_come_back() {
    require!(Root);
    let node = ServiceNode::start(
        "services-shim",
        "[services.web]\ncommand = ['sleep', '74061']\n",
    );
    node.until_state("web", "Running").await;
    let first = node.pid("web").await;
    let status = std::fs::read_to_string(format!("/proc/{first}/status")).unwrap();
    let parent = status
        .lines()
        .find_map(|line| line.strip_prefix("PPid:"))
        .unwrap();
    let shim = rustix::process::Pid::from_raw(parent.trim().parse().unwrap()).unwrap();
    rustix::process::kill_process(shim, rustix::process::Signal::KILL).unwrap();
    let web = node
        .until("web", |web| {
            messages(web)
                .iter()
                .filter(|text| **text == "started")
                .count()
                == 2
        })
        .await;
    assert_eq!(web.state, "Running");
    assert_eq!(processes_with("74061").len(), 1);
    assert_ne!(node.pid("web").await, first);
}

#[tokio::test]
async fn a_stop_that_its_caller_abandons_goes_on() {
    require!(Root);
    let node = ServiceNode::start(
        "services-abandoned",
        "[services.slow]\ncommand = \"sh -c 'trap \\\"\\\" TERM; echo up; while :; do sleep 74071; done'\"\n\
         stop_grace = '200ms'\n",
    );
    node.until_line("slow", "up").await;
    let abandoned =
        tokio::time::timeout(Duration::from_millis(20), node.stop_service("slow")).await;
    assert!(abandoned.is_err());
    node.until_state("slow", "Finished").await;
}
