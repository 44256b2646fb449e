//! Services outlive the daemon, and the next daemon takes them over.

use mainstay_testkit::{TestNode, require};
use rustix::process::{Pid, Signal, kill_process};

use super::service_node::{ServiceNode, message, messages, processes_with};

const SERVICES: &str = "
[services.web]
command = ['sleep', '72001']
[services.off]
command = ['sleep', '72002']
[services.once]
command = 'sh -c \"echo ran\"'
oneshot = true
";

async fn count_of_runs(node: &ServiceNode) -> usize {
    let text = node.until_line("once", "ran").await;
    text.lines().filter(|line| *line == "ran").count()
}

#[tokio::test]
async fn a_new_daemon_adopts_what_runs_and_leaves_stopped_what_was_stopped() {
    require!(Root);
    let mut node = ServiceNode::start("services-adopt", SERVICES);
    node.until_state("off", "Running").await;
    node.until_state("once", "Finished").await;
    node.until_state("web", "Running").await;
    let pid = node.pid("web").await;
    node.stop_service("off").await.unwrap();
    for kill in [false, true] {
        if kill {
            node.node.kill();
        }
        node = node.with_node(TestNode::restart);
        let web = node.service("web").await;
        assert_eq!((web.state.as_str(), message(&web)), ("Running", "adopted"));
        assert_eq!(node.pid("web").await, pid);
        assert_eq!(node.service("off").await.state, "Finished");
        assert!(processes_with("72002").is_empty());
        assert_eq!(node.service("once").await.state, "Finished");
        assert_eq!(count_of_runs(&node).await, 1, "it is not run again");
    }
    node.start_service("off").await.unwrap();
    node.until_state("off", "Running").await;
    let node = node.with_node(TestNode::restart);
    node.until_state("off", "Running").await;
}

#[tokio::test]
async fn an_exit_without_a_daemon_is_handled_by_the_policy_of_the_service() {
    require!(Root);
    let mut node = ServiceNode::start(
        "services-missed",
        "[services.again]\ncommand = ['sleep', '72011']\n\
         [services.never]\ncommand = ['sleep', '72012']\nrestart = 'never'\n\
         [services.gone]\ncommand = ['sleep', '72013']\n\
         [services.changed]\ncommand = ['sleep', '72014']\n",
    );
    for id in ["again", "never", "gone", "changed"] {
        node.until_state(id, "Running").await;
    }
    node.node.kill();
    for argument in ["72011", "72012"] {
        let [pid] = processes_with(argument)[..] else {
            panic!("one process of each");
        };
        let pid = Pid::from_raw(i32::try_from(pid).unwrap()).unwrap();
        kill_process(pid, Signal::KILL).unwrap();
    }
    let config = std::fs::read_to_string(node.node.config_file()).unwrap();
    let config = config
        .replace("[services.gone]\ncommand = ['sleep', '72013']\n", "")
        .replace("72014", "72015");
    let node = node.with_node(|node| node.into_builder().config(&config).start());
    node.until_state("again", "Running").await;
    let again = node.service("again").await;
    assert!(
        messages(&again)[0].starts_with("killed with signal 9; restart in"),
        "{again:?}"
    );
    let never = node.until_state("never", "Failed").await;
    assert_eq!(message(&never), "killed with signal 9");
    node.until("changed", |_| {
        processes_with("72014").is_empty() && processes_with("72015").len() == 1
    })
    .await;
    // Ended in the background, after the node is ready.
    let left = processes_with("72013");
    for pid in left {
        wait_for_end(pid);
    }
}

/// Waits until a process that is being stopped has ended.
fn wait_for_end(pid: u32) {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) else {
        return;
    };
    let Ok(pidfd) = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) else {
        return;
    };
    let bound = Timespec {
        tv_sec: 60,
        tv_nsec: 0,
    };
    let ready = poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], Some(&bound)).unwrap();
    assert_eq!(ready, 1, "process {pid:?} still runs");
}

#[tokio::test]
async fn a_daemon_killed_at_any_moment_leaves_each_service_once() {
    require!(Root);
    let mut services = String::new();
    for number in 0..24 {
        services += &format!("[services.s{number}]\ncommand = ['sleep', '73{number:03}']\n");
        if number >= 4 {
            services += &format!("requires = ['s{}']\n", number - 4);
        }
    }
    let mut node = ServiceNode::start("services-killed", &services);
    for round in 0_usize..8 {
        // While they start, while some stop, and while they restart.
        match round % 4 {
            0 => {}
            1 => {
                let stop = node.stop_service("s0");
                let _ = tokio::time::timeout(
                    std::time::Duration::from_millis(fastrand::u64(..20)),
                    stop,
                )
                .await;
            }
            2 => {
                let restart = node.restart_service("s3");
                let _ = tokio::time::timeout(
                    std::time::Duration::from_millis(fastrand::u64(..20)),
                    restart,
                )
                .await;
            }
            _ => {
                let count = fastrand::usize(..24);
                node.until_all(|services| {
                    let up = services.iter().filter(|one| one.state == "Running").count();
                    (up >= count).then_some(())
                })
                .await;
            }
        }
        node.node.kill();
        node = node.with_node(TestNode::restart);
        node.start_service("s0").await.unwrap();
    }
    node.until_all(|services| {
        services
            .iter()
            .all(|one| one.state == "Running")
            .then_some(())
    })
    .await;
    for number in 0..24 {
        let found = processes_with(&format!("73{number:03}"));
        assert_eq!(found.len(), 1, "s{number}: {found:?}");
        assert_eq!(node.pid(&format!("s{number}")).await, found[0]);
    }
}
