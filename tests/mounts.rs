//! `Mounts` and `mainstay df`.

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_testkit::TestNode;

#[tokio::test]
async fn mounts_come_in_the_kernel_s_order_with_bytes() {
    let node = TestNode::start();
    let mut machine = MachineServiceClient::new(node.connect().await);
    let answer = machine.mounts(()).await.unwrap().into_inner();
    assert_eq!(answer.messages.len(), 1);
    let stats = &answer.messages[0].stats;
    let kernel = std::fs::read_to_string(format!("/proc/{}/mounts", node.pid())).unwrap();
    let kernel: Vec<&str> = kernel
        .lines()
        .map(|line| line.split(' ').nth(1).unwrap())
        .filter(|t| !t.contains('\\'))
        .collect();
    let told: Vec<&str> = stats.iter().map(|stat| stat.mounted_on.as_str()).collect();
    assert!(kernel.iter().all(|target| told.contains(target)));
    let in_both = |all: &[&str], other: &[&str]| -> Vec<String> {
        let both = all.iter().filter(|target| other.contains(target));
        both.map(|target| (*target).to_owned()).collect()
    };
    assert_eq!(in_both(&told, &kernel), in_both(&kernel, &told));
    let root = stats.iter().find(|stat| stat.mounted_on == "/").unwrap();
    let statvfs = rustix::fs::statvfs("/").unwrap();
    assert_eq!(root.size, statvfs.f_blocks * statvfs.f_frsize);
    assert!(root.available <= root.size);
}

#[test]
fn the_command_hides_what_has_no_size_unless_asked() {
    let node = TestNode::start();
    let table = node.cli().run(["df"]).ok();
    assert!(table.lines().any(|line| line.ends_with(" /")), "{table}");
    assert!(
        !table.lines().any(|line| line.ends_with(" /proc")),
        "{table}"
    );
    let all = node.cli().run(["mounts", "--all"]).ok();
    assert!(all.lines().any(|line| line.ends_with(" /proc")), "{all}");
}
