//! `Memory` and `mainstay free`.

use mainstay_api::os::os_service_client::OsServiceClient;
use mainstay_testkit::TestNode;

#[tokio::test]
async fn numbers_are_those_of_the_kernel_in_kib() {
    let node = TestNode::start();
    let mut os = OsServiceClient::new(node.connect().await);
    let answer = os.memory(()).await.unwrap().into_inner();
    assert_eq!(answer.messages.len(), 1);
    let told = answer.messages[0].meminfo.unwrap();
    let kernel = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = |name: &str| -> u64 {
        let line = kernel.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_ascii_whitespace()
            .nth(1)
            .unwrap()
            .parse()
            .unwrap()
    };
    // These do not change while a machine runs.
    assert_eq!(told.memtotal, line("MemTotal:"));
    assert_eq!(told.swaptotal, line("SwapTotal:"));
    assert_eq!(told.vmalloctotal, line("VmallocTotal:"));
    assert_eq!(told.commitlimit, line("CommitLimit:"));
    assert!(told.memfree > 0 && told.memfree < told.memtotal);
    assert!(told.activeanon + told.activefile <= told.active + 1);
}

#[test]
fn the_command_prints_memory_and_swap() {
    let node = TestNode::start();
    let table = node.cli().run(["free"]).ok();
    assert!(
        table.contains("memory") && table.contains("swap"),
        "{table}"
    );
    let json = node.cli().run(["memory", "-o", "json"]).json();
    assert!(json[0]["meminfo"]["memtotal"].as_u64().unwrap() > 0);
}
