//! How fast a tree of many files comes out of the node as an archive, against tar through ssh.
//!
//! Whole runs: what a user waits for. `tar cz` packs tighter and takes its time for it, so the same
//! with gzip at its fastest is shown beside it, and how large each archive came out.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use mainstay_api::machine::CopyRequest;
use mainstay_testkit::procfs::{cpu_seconds, peak_resident};
use tempfile::TempDir;

use super::{Setup, Single, megabytes};
use crate::client::Client;
use crate::peer::printed;
use crate::report::{Report, Target};
use crate::ssh::Ssh;
use crate::stats::median;

const FILES_A_DIRECTORY: usize = 100;
const FILE_BYTES: usize = 4096;

pub async fn run(setup: &Setup) -> Result<Report> {
    let (rounds, files) = setup.pick((3, 50_000), (1, 2_000));
    let dir = TempDir::with_prefix("mainstay-bench-")?;
    let tree = dir.path().join("tree");
    make_tree(&tree, files)?;
    let ssh = Ssh::start()?;
    let single = Single::start(setup);
    let mut client = single.connect().await?;

    let at = tree.display();
    let (tar, fast) = (
        format!("tar cz -C {at} ."),
        format!("tar c -C {at} . | gzip -1"),
    );
    let (mut node, mut default, mut fastest) = (Runs::default(), Runs::default(), Runs::default());
    let mut cpu = vec![];
    for _ in 0..rounds {
        let before = cpu_seconds(single.node.pid())?;
        let began = Instant::now();
        let bytes = copy(&mut client, &tree).await?;
        node.add(began.elapsed().as_secs_f64(), bytes);
        cpu.push(cpu_seconds(single.node.pid())? - before);
        for (runs, remote) in [(&mut default, &tar), (&mut fastest, &fast)] {
            let printed = printed(ssh.command(remote)).await?;
            runs.add(printed.took.as_secs_f64(), printed.bytes);
        }
    }

    let mut report = Report::new(
        "copy",
        format!("{files} files of {FILE_BYTES} bytes, median of {rounds} rounds, in turns"),
    );
    let node = node.show(&mut report, "Copy over mTLS");
    let default = default.show(&mut report, "tar cz through ssh");
    let fastest = fastest.show(&mut report, "tar c | gzip -1 through ssh");
    report.figure("Copy over mTLS", "node CPU s", median(cpu));
    let target = Some(Target::AtLeast(1.5));
    report.ratio("Copy's speed against tar cz", default / node, target);
    report.ratio("Copy's speed against tar c | gzip -1", fastest / node, None);
    report.compare(
        "the node's memory at its peak",
        megabytes(peak_resident(single.node.pid())?),
        " MB",
        Some(Target::AtMost(40.0)),
    );
    Ok(report)
}

/// Whole runs, in seconds.
#[derive(Default)]
struct Runs {
    seconds: Vec<f64>,
    bytes: u64,
}

impl Runs {
    fn add(&mut self, seconds: f64, bytes: u64) {
        self.seconds.push(seconds);
        self.bytes = bytes;
    }

    fn show(self, report: &mut Report, subject: &str) -> f64 {
        let seconds = median(self.seconds);
        report.figure(subject, "s", seconds);
        report.figure(subject, "MB packed", megabytes(self.bytes));
        seconds
    }
}

/// Files that can be shortened about as much as configuration and source text can.
fn make_tree(root: &Path, files: usize) -> Result<()> {
    const WORDS: [&str; 16] = [
        "node",
        "service",
        "interface",
        "address",
        "volume",
        "restart",
        "memory",
        "limit",
        "timeout",
        "certificate",
        "listen",
        "enabled",
        "path",
        "user",
        "0.0.0.0",
        "eth0",
    ];
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut text = String::with_capacity(FILE_BYTES + 64);
    for file in 0..files {
        let dir = root.join(format!("{:04}", file / FILES_A_DIRECTORY));
        if file.is_multiple_of(FILES_A_DIRECTORY) {
            std::fs::create_dir_all(&dir)?;
        }
        text.clear();
        while text.len() < FILE_BYTES {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            let word = WORDS[(state >> 60) as usize];
            text.push_str(&format!("{word} = {}\n", state % 100_000));
        }
        text.truncate(FILE_BYTES);
        std::fs::write(dir.join(format!("{file:06}.conf")), &text)?;
    }
    Ok(())
}

async fn copy(client: &mut Client, tree: &Path) -> Result<u64> {
    let request = CopyRequest {
        root_path: tree.display().to_string(),
    };
    let mut stream = client.copy(request).await?.into_inner();
    let mut bytes = 0;
    while let Some(data) = stream.message().await? {
        if let Some(left_out) = data.metadata {
            anyhow::bail!("something was left out: {}", left_out.error);
        }
        bytes += data.bytes.len() as u64;
    }
    Ok(bytes)
}
