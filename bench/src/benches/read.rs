//! How fast a large file comes out of the node, against `ssh localhost cat`.
//!
//! From the first byte on, so that making a process and a connection does not count on either side.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::Instant;

use anyhow::{Result, ensure};
use mainstay_api::machine::ReadRequest;
use mainstay_testkit::procfs::{cpu_seconds, peak_resident};
use tempfile::TempDir;

use super::{Setup, Single, megabytes};
use crate::client::Client;
use crate::peer::{Printed, printed};
use crate::report::{Report, Target};
use crate::ssh::Ssh;
use crate::stats::median;

pub async fn run(setup: &Setup) -> Result<Report> {
    let (rounds, mebibytes) = setup.pick((5, 1024_u64), (1, 64));
    let bytes = mebibytes << 20;
    let dir = TempDir::with_prefix("mainstay-bench-")?;
    let path = dir.path().join("file");
    write_file(&path, bytes)?;
    let ssh = Ssh::start()?;
    let single = Single::start(setup);
    let mut client = single.connect().await?;

    let remote = format!("cat {}", path.display());
    let (mut node, mut default, mut fastest, mut cpu) = (vec![], vec![], vec![], vec![]);
    let rate = |printed: Printed| -> Result<f64> {
        ensure!(printed.bytes == bytes, "only {} bytes came", printed.bytes);
        Ok(megabytes(bytes) / printed.after_first.as_secs_f64())
    };
    for _ in 0..rounds {
        let before = cpu_seconds(single.node.pid())?;
        node.push(read(&mut client, &path, bytes).await?);
        cpu.push(cpu_seconds(single.node.pid())? - before);
        default.push(rate(printed(ssh.command(&remote)).await?)?);
        fastest.push(rate(printed(ssh.fastest(&remote)).await?)?);
    }

    let mut report = Report::new(
        "read",
        format!("a file of {mebibytes} MiB, median of {rounds} rounds, in turns"),
    );
    let (node, default, fastest) = (median(node), median(default), median(fastest));
    for (subject, rate) in [
        ("Read over mTLS", node),
        ("ssh localhost cat", default),
        ("ssh -c aes128-gcm localhost cat", fastest),
    ] {
        report.figure(subject, "MB/s", rate);
    }
    report.figure("Read over mTLS", "node CPU s", median(cpu));
    let target = Some(Target::AtLeast(1.5));
    report.ratio("Read against ssh", node / default, target);
    report.ratio("Read against ssh -c aes128-gcm", node / fastest, None);
    report.compare(
        "the node's memory at its peak",
        megabytes(peak_resident(single.node.pid())?),
        " MB",
        Some(Target::AtMost(40.0)),
    );
    Ok(report)
}

/// Bytes that no layer could shorten.
fn write_file(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut block = Vec::with_capacity(1 << 20);
    while block.len() < 1 << 20 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        block.extend_from_slice(&state.to_le_bytes());
    }
    for _ in 0..bytes >> 20 {
        file.write_all(&block)?;
    }
    Ok(())
}

async fn read(client: &mut Client, path: &Path, bytes: u64) -> Result<f64> {
    let request = ReadRequest {
        path: path.display().to_string(),
    };
    let mut stream = client.read(request).await?.into_inner();
    let (mut first, mut seen) = (None, 0);
    while let Some(data) = stream.message().await? {
        first.get_or_insert_with(Instant::now);
        seen += data.bytes.len() as u64;
    }
    ensure!(seen == bytes, "only {seen} bytes came");
    let took = first.map_or(f64::NAN, |first| first.elapsed().as_secs_f64());
    Ok(megabytes(bytes) / took)
}
