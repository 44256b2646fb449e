//! The readings later clients know, against the kernel's own files.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::{TestFleet, TestNode, dead_address};

fn kernel(file: &str) -> String {
    std::fs::read_to_string(file).unwrap()
}

#[tokio::test]
async fn each_reading_is_one_message_of_this_node() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);

    let hostname = machine.hostname(()).await.unwrap().into_inner().messages;
    assert_eq!(hostname.len(), 1);
    assert_eq!(
        hostname[0].hostname,
        kernel("/proc/sys/kernel/hostname").trim()
    );
    assert!(hostname[0].metadata.is_none());

    let load = machine.load_avg(()).await.unwrap().into_inner().messages;
    assert!(load.len() == 1 && load[0].load15 >= 0.0);

    let cpus = machine.cpu_info(()).await.unwrap().into_inner().messages;
    let processors = kernel("/proc/cpuinfo").matches("processor\t").count();
    assert_eq!(cpus[0].cpu_info.len(), processors);
    assert_eq!(
        cpus[0].cpu_info.last().map(|cpu| cpu.processor as usize),
        Some(processors - 1)
    );

    let frequencies = machine
        .cpu_freq_stats(())
        .await
        .unwrap()
        .into_inner()
        .messages;
    assert_eq!(frequencies[0].cpu_freq_stats.len(), processors);
}

#[tokio::test]
async fn the_kernel_s_counters_go_forward() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let mut read = async || {
        machine
            .system_stat(())
            .await
            .unwrap()
            .into_inner()
            .messages
            .remove(0)
    };
    let (first, second) = (read().await, read().await);
    let boot = kernel("/proc/stat");
    let boot = boot
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .unwrap();
    assert_eq!(first.boot_time.to_string(), boot);
    assert!(second.context_switches > first.context_switches);
    assert!(second.irq_total >= first.irq_total && first.irq_total > 0);
    let idle = |stat: &mainstay_api::machine::SystemStat| stat.cpu_total.unwrap().idle;
    assert!(idle(&first) > 1.0, "seconds");
    assert!(idle(&second) >= idle(&first));
    assert!(!first.cpu.is_empty());
}

#[tokio::test]
async fn devices_are_there_with_their_sum() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let network = machine
        .network_device_stats(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    let loopback = network
        .devices
        .iter()
        .find(|device| device.name == "lo")
        .unwrap();
    assert!(loopback.rx_bytes > 0 && loopback.rx_bytes == loopback.tx_bytes);
    let sum: u64 = network.devices.iter().map(|device| device.rx_packets).sum();
    assert_eq!(network.total.unwrap().rx_packets, sum);

    let disks = machine
        .disk_stats(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert_eq!(
        disks.devices.len(),
        kernel("/proc/diskstats").lines().count()
    );
    let most = disks
        .devices
        .iter()
        .map(|disk| disk.read_completed)
        .max()
        .unwrap_or(0);
    assert!(disks.total.unwrap().read_completed >= most);
}

#[tokio::test]
async fn the_logs_of_the_node_are_listed() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let logs = machine
        .logs_containers(())
        .await
        .unwrap()
        .into_inner()
        .messages
        .remove(0);
    assert_eq!(logs.ids, ["audit", "denied", "kernel", "mainstay"]);
}

#[test]
fn commands_show_every_node_that_answers_and_name_the_one_that_does_not() {
    let fleet = TestFleet::start(2);
    let dead = dead_address().to_string();
    let nodes = format!("{},{dead}", fleet.list());
    for command in ["time", "interfaces", "routes", "disks", "cgroups"] {
        let mut args = vec![command, "-n", &nodes];
        if command == "cgroups" {
            args.extend(["-d", "1"]);
        }
        let shown = fleet.nodes[0].cli().run(&args);
        assert_eq!(shown.code, 8, "{command}: {}", shown.stderr);
        assert!(shown.stderr.contains(&dead), "{command}: {}", shown.stderr);
        args.extend(["-o", "json"]);
        let shown = fleet.nodes[0].cli().run(&args);
        let answers: serde_json::Value = serde_json::from_str(&shown.stdout).unwrap();
        let answers = answers.as_array().unwrap().iter();
        let answered: Vec<_> = answers
            .map(|answer| answer["node"].as_str().unwrap())
            .collect();
        assert_eq!(answered, fleet.names(), "{command}");
    }
}
