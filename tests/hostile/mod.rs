//! Malicious or broken input from clients, other nodes, disks and configuration. Afterwards the node
//! serves all others, has not grown, and has not panicked.

mod archives;
mod audit;
mod bytes;
mod clock;
mod command_line;
mod configuration;
mod connections;
mod fan_out;
mod http2;
mod hung_file_system;
mod lock_out;
mod messages;
mod nodes;
mod slow_readers;
mod state;
mod storage;
mod swapped_directories;
mod unix_socket;
mod users;

use std::time::Duration;

use mainstay_api::machine::machine_service_client::MachineServiceClient;
use mainstay_identity::Role;
use mainstay_testkit::TestNode;
use mainstay_testkit::procfs::Memory;
use tonic::transport::Channel;

/// The bound of a response to other callers; generous, for a busy machine.
const SERVED_WITHIN: Duration = Duration::from_secs(5);
/// The bound of the RSS of a node under any attack; an idle one needs a tenth.
const MAX_RESIDENT_MIB: u64 = 200;

/// Asserts that the node serves uninvolved callers on both listeners, and is otherwise well.
pub async fn assert_unharmed(node: &TestNode) {
    let bystander = node.credentials("bystander", &[Role::Reader]);
    let served = async {
        ask_version(node.connect_as(&bystander).await).await;
        ask_version(node.connect_locally().await).await;
    };
    tokio::time::timeout(SERVED_WITHIN, served)
        .await
        .expect("others are served");
    assert_well(node);
}

/// The process itself: not grown, not panicked.
fn assert_well(node: &TestNode) {
    let resident = resident_mib(node);
    assert!(
        resident < MAX_RESIDENT_MIB,
        "the RSS of the node is {resident} MiB"
    );
    let said = node.stderr();
    assert!(!said.contains("panicked"), "{said}");
}

async fn ask_version(channel: Channel) {
    MachineServiceClient::new(channel)
        .version(())
        .await
        .expect("the node answers");
}

fn resident_mib(node: &TestNode) -> u64 {
    Memory::of(node.pid()).unwrap().resident >> 20
}

/// The number of sockets the node has open, listeners included.
fn open_sockets(node: &TestNode) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", node.pid()))
        .unwrap()
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.to_string_lossy().starts_with("socket:"))
        .count()
}

/// Pseudorandom bytes, the same in every run.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    })
    .take(length)
    .collect()
}
