//! Latency of the list of all processes, with a thousand more than usual.
//!
//! `ps` is a process that has to be made each time, the node is asked on a connection that is there;
//! our own command, which makes a process and a connection, is shown beside it.

use std::io::{PipeWriter, pipe};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};

use super::{Setup, Single};
use crate::peer::printed;
use crate::report::{Report, Target};
use crate::stats::Samples;

pub async fn run(setup: &Setup) -> Result<Report> {
    let (times, extra) = setup.pick((50, 1000), (5, 100));
    let _crowd = Crowd::gather(extra)?;
    let single = Single::start(setup);
    let mut client = single.connect().await?;
    let (mut node, mut ps, mut cli) = (Samples::default(), Samples::default(), Samples::default());
    let mut seen = 0;
    for _ in 0..times {
        let began = Instant::now();
        let answer = client.processes(()).await?.into_inner();
        node.push(began.elapsed());
        seen = answer
            .messages
            .iter()
            .map(|node| node.processes.len())
            .sum();
        ensure!(seen > extra, "only {seen} processes are listed");

        let mut command = Command::new("ps");
        command.arg("aux");
        ps.push(printed(command).await?.took);

        let mut command = Command::new(&setup.binary);
        command
            .arg("ps")
            .env("MAINSTAY_STATE", single.node.state())
            .env_remove("MAINSTAY_CONFIG");
        cli.push(printed(command).await?.took);
    }
    let mut report = Report::new(
        "processes",
        format!("all of {seen} processes, {times} times, in turns"),
    );
    for (subject, samples) in [
        ("Processes over mTLS", &mut node),
        ("ps aux, a process", &mut ps),
        ("mainstay ps, a process", &mut cli),
    ] {
        report.figure(subject, "p50 µs", samples.percentile_us(50));
        report.figure(subject, "p95 µs", samples.percentile_us(95));
    }
    report.ratio(
        "p50 of Processes over mTLS against ps aux",
        node.percentile_us(50) / ps.percentile_us(50),
        Some(Target::AtMost(1.0)),
    );
    Ok(report)
}

/// Processes that do nothing until it is gone, and end even when it is not dropped.
struct Crowd {
    children: Vec<Child>,
    /// The pipe that all of them read from.
    end: Option<PipeWriter>,
}

impl Crowd {
    fn gather(count: usize) -> Result<Self> {
        let (reader, writer) = pipe()?;
        let mut crowd = Self {
            children: Vec::with_capacity(count),
            end: Some(writer),
        };
        for _ in 0..count {
            let mut command = Command::new("cat");
            command.stdin(reader.try_clone()?).stdout(Stdio::null());
            let child = command.spawn().context("cat cannot be run")?;
            crowd.children.push(child);
        }
        Ok(crowd)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.end = None;
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}
