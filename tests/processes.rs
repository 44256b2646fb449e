//! `Processes`, under both service names, and `mainstay ps`.

use std::time::Duration;

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_api::os::ProcessInfo;
use mainstay_api::os::os_service_client::OsServiceClient;
use mainstay_testkit::TestNode;

async fn processes(node: &TestNode) -> Vec<ProcessInfo> {
    let mut os = OsServiceClient::new(node.connect().await);
    let mut answer = os.processes(()).await.unwrap().into_inner();
    assert_eq!(answer.messages.len(), 1);
    assert!(answer.messages[0].metadata.is_none());
    answer.messages.remove(0).processes
}

#[tokio::test]
async fn the_node_sees_itself_and_its_children_as_the_kernel_does() {
    let node = TestNode::start();
    let all = processes(&node).await;
    let find = |pid: u32| {
        all.iter()
            .find(|process| u32::try_from(process.pid) == Ok(pid))
    };
    let daemon = find(node.pid()).expect("the daemon itself");
    assert_eq!(u32::try_from(daemon.ppid), Ok(std::process::id()));
    assert_eq!(daemon.command, "mainstay");
    assert_eq!(
        daemon.executable,
        mainstay_testkit::binary().display().to_string()
    );
    assert!(daemon.args.contains(" serve --state "), "{}", daemon.args);
    assert_eq!(daemon.state.len(), 1);
    assert!(daemon.threads > 1);
    assert!(daemon.resident_memory > 1 << 20, "bytes, not pages or KiB");
    assert!(daemon.virtual_memory >= daemon.resident_memory);
    assert!(all.is_sorted_by_key(|process| process.pid));
    assert_eq!(daemon.uid, Some(rustix::process::geteuid().as_raw()));
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap();
    let is_user = |line: &&str| line.split(':').nth(2) == Some(&daemon.uid.unwrap().to_string());
    let user = passwd
        .lines()
        .find(is_user)
        .and_then(|line| line.split(':').next());
    assert_eq!(daemon.user, user.unwrap_or_default());
    let age = daemon.elapsed_time;
    assert!(
        (0.0..3600.0).contains(&age),
        "{age} s since the start of the test node"
    );
    assert!(daemon.start_time.is_some());
    // It has written its certificates.
    assert!(daemon.write_bytes.is_some() && daemon.read_bytes.is_some());
    let first = find(1).expect("the first process");
    let told = Duration::from_secs_f64(first.cpu_time);
    assert!(
        told.abs_diff(cpu_time_of(1)) < Duration::from_secs(5),
        "{told:?}"
    );
}

/// User and system time by the kernel's own account, in its ticks of a hundredth of a second.
fn cpu_time_of(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let fields: Vec<&str> = after_name.split_ascii_whitespace().collect();
    let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
    Duration::from_millis(ticks * 1000 / rustix::param::clock_ticks_per_second())
}

#[tokio::test]
async fn the_machine_service_lists_processes_too() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let answer = machine.processes(()).await.unwrap().into_inner();
    assert!(answer.messages[0].processes.len() > 1);
}

#[tokio::test]
async fn processes_that_come_and_go_during_the_scan_do_no_harm() {
    let node = TestNode::start();
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let churn = std::thread::spawn({
        let stop = std::sync::Arc::clone(&stop);
        move || {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let _ = std::process::Command::new("true").status();
            }
        }
    });
    for _ in 0..50 {
        let all = processes(&node).await;
        assert!(
            all.iter()
                .all(|process| process.pid > 0 && !process.state.is_empty())
        );
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    churn.join().unwrap();
}

#[test]
fn the_command_sorts_and_filters() {
    let node = TestNode::start();
    let own = format!("--state {}", node.state().display());
    let table = node.cli().run(["ps", "--filter", &own]).ok();
    let rows: Vec<&str> = table.lines().skip(1).collect();
    assert!(rows.iter().all(|row| row.contains(&own)), "{table}");
    let pid = format!("{} ", node.pid());
    assert!(rows.iter().any(|row| row.starts_with(&pid)), "{table}");
    let none = node
        .cli()
        .run(["ps", "--filter", "\u{1}no such process"])
        .ok();
    assert!(!none.contains(&format!("\n{pid}")), "{none}");

    let json = node
        .cli()
        .run(["processes", "--sort", "memory", "-o", "json"])
        .json();
    let sizes: Vec<u64> = json[0]["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|process| process["residentMemory"].as_u64().unwrap())
        .collect();
    assert!(sizes.is_sorted_by(|a, b| a >= b));
}
