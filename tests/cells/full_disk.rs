//! Cells of a node whose disk has no room at all.

use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use mainstay_api::runtime::ExecutableState;
use mainstay_testkit::{PrivateMounts, TestNode};

use super::cell_node::CellNode;

const STATE_KIB: u32 = 4096;
const STDOUT: i32 = 0;
const STDERR: i32 = 1;

/// All output together leaves its share of the file system free, and the newest lines are there.
#[tokio::test]
async fn output_leaves_a_share_of_the_disk_free() {
    const DISK_KIB: u32 = 64 * 1024;
    let builder = TestNode::builder();
    let mounts = PrivateMounts::tmpfs(&builder.state(), DISK_KIB);
    let builder = builder.inside(mounts.namespace());
    let test = CellNode::start_with("disk-share", builder, "log_keep_free = '50%'\n");
    test.allocate("a", &[]).await;
    // Before space is scarce: it stays.
    let quiet = test.start_in("a", "quiet", "echo still here").await;
    let noise = "sh -c 'yes 0123456789abcdef0123456789abcdef | head -c 19800000; echo the end'";
    let mut pids = Vec::new();
    for name in ["one", "two", "three"] {
        pids.push(test.start_in("a", name, noise).await);
    }
    for (pid, name) in pids.into_iter().zip(["one", "two", "three"]) {
        test.output(pid, STDERR).await;
        let log = format!("a/{name}");
        let last = test.node.cli().run(["logs", &log, "--tail", "1"]).ok();
        assert_eq!(last.trim_end(), "the end");
    }
    let space = rustix::fs::statvfs(test.node.state()).unwrap();
    // One more step of a writer fits between two looks at the disk.
    let least = space.f_blocks / 2 - space.f_blocks / 8;
    assert!(
        space.f_bavail >= least,
        "{} of {}",
        space.f_bavail,
        space.f_blocks
    );
    let lines = test.output(quiet, STDOUT).await;
    assert_eq!(lines.len(), 1, "{lines:?}");
    test.finish().await;
}

/// Takes all the room there is.
fn fill(directory: &Path) -> PathBuf {
    let path = directory.join("filler");
    let mut file = File::options()
        .append(true)
        .create(true)
        .open(&path)
        .unwrap();
    for size in [4096, 1] {
        while file.write_all(&vec![b'x'; size]).is_ok() {}
    }
    path
}

/// Also on another address, for which the client configuration is written anew.
#[tokio::test]
async fn a_node_without_room_starts_stops_and_tells_the_truth() {
    let builder = TestNode::builder();
    let mounts = PrivateMounts::tmpfs(&builder.state(), STATE_KIB);
    let builder = builder.inside(mounts.namespace());
    let test = CellNode::start_as("full-disk", builder);
    test.allocate("a", &[]).await;
    let outside = tempfile::tempdir().unwrap();
    let fifo = |name: &str| {
        let path = outside.path().join(name);
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, rustix::fs::Mode::from(0o600)).unwrap();
        path
    };
    let (first, second) = (fifo("first"), fifo("second"));
    let waits = |fifo: &Path| format!("sh -c 'read line <{}; exit 7'", fifo.display());
    let one = test.start_in("a", "one", &waits(&first)).await;
    let two = test.start_in("a", "two", &waits(&second)).await;
    test.start_in("a", "three", "sleep 1000").await;
    let state = test.node.state();
    let filler = fill(&state);

    // An exit that cannot be recorded is known all the same.
    std::fs::write(&first, "go\n").unwrap();
    test.output(one, STDOUT).await;
    let status = test.executable("a", "one").await;
    assert_eq!(
        (status.state(), status.exit_code),
        (ExecutableState::Exited, 7)
    );
    let mut client = test.client().await;
    client.stop("a", "three").await.unwrap();
    let status = test.executable("a", "three").await;
    assert_eq!(status.state(), ExecutableState::Exited);
    // Nothing is started of which there would be no record.
    let refused = client.start("a", "four", "sleep 1000").await.unwrap_err();
    assert!(refused.message().contains("No space left"), "{refused}");

    // A daemon that starts without room learns the same.
    let test = test.crash(
        |_| {
            std::fs::write(&second, "go\n").unwrap();
            fill(&state);
        },
        |node| node.into_builder().start(),
    );
    for (pid, name) in [(one, "one"), (two, "two")] {
        test.output(pid, STDOUT).await;
        let status = test.executable("a", name).await;
        assert_eq!(status.state(), ExecutableState::Exited, "{name}");
        assert_eq!(status.exit_code, 7, "{name}");
    }
    std::fs::remove_file(filler).unwrap();
    test.start_in("a", "five", "true").await;
    test.finish().await;
}
