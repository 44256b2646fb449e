//! The life of a cell whose program would run on: allocated, started in, stopped, freed, and where
//! the time of it goes.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

use super::{Setup, alone, percentiles};
use crate::cells::{CellClient, CellEndpoint, CellNode};
use crate::report::{Report, Target};
use crate::stats::Samples;

const PROGRAM: &str = "sleep 1000";
const TARGET_MS: f64 = 5.0;
/// The cell that is there all the time where two builds are compared.
const KEPT: &str = "kept";

#[derive(Default)]
struct Times {
    allocate: Samples,
    start: Samples,
    stop: Samples,
    free: Samples,
    whole: Samples,
}

impl Times {
    fn calls(&mut self) -> [(&'static str, &mut Samples); 5] {
        [
            ("Allocate", &mut self.allocate),
            ("Start", &mut self.start),
            ("Stop", &mut self.stop),
            ("Free", &mut self.free),
            ("all four", &mut self.whole),
        ]
    }
}

pub async fn run(setup: &Setup) -> Result<Report> {
    if let Some(other) = &setup.against {
        return run_against(setup, other).await;
    }
    let rounds = setup.pick(1000, 50);
    let node = CellNode::start(setup)?;
    let endpoint = node.endpoint();
    let mut times = alone(move || async move { measure(&endpoint, rounds).await }).await?;

    let mut report = Report::new(
        "cell-cycle",
        format!("{PROGRAM:?} in a new cell each time, {rounds} times, one after the other"),
    );
    for (subject, samples) in times.calls() {
        percentiles(&mut report, subject, samples);
    }
    report.compare(
        "all four, p50",
        times.whole.percentile_us(50) / 1e3,
        " ms",
        Some(Target::AtMost(TARGET_MS)),
    );
    Ok(report)
}

/// Measures two builds in turns: a noisy machine disturbs both alike.
async fn run_against(setup: &Setup, other: &Path) -> Result<Report> {
    let rounds = setup.pick(1000, 50);
    let nodes = [CellNode::start(setup)?, CellNode::of_program(other)?];
    let endpoints = nodes.each_ref().map(CellNode::endpoint);
    let (times, shims) = alone(move || async move {
        let mut clients = Vec::new();
        let mut shims = Vec::new();
        for endpoint in &endpoints {
            let mut client = endpoint.connect().await?;
            // Its cgroup counts the CPU time of all cells.
            client.allocate(KEPT).await?;
            client.start(KEPT, PROGRAM).await?;
            let kept = client.list().await?;
            let shim = kept
                .first()
                .and_then(|cell| u32::try_from(cell.shim_pid).ok());
            shims.push(shim.context("the first cell has no shim")?);
            once(&mut client, &mut Times::default()).await?;
            clients.push(client);
        }
        let mut times = [Times::default(), Times::default()];
        for _ in 0..rounds {
            for (client, times) in clients.iter_mut().zip(&mut times) {
                once(client, times).await?;
            }
        }
        Ok((times, shims))
    })
    .await?;

    let mut report = Report::new(
        "cell-cycle-builds",
        format!(
            "{PROGRAM:?} in a new cell each time, {rounds} times in turns with {}",
            other.display()
        ),
    );
    let [mut own, mut others] = times;
    for ((subject, own), (_, others)) in own.calls().into_iter().zip(others.calls()) {
        percentiles(&mut report, subject, own);
        percentiles(&mut report, &format!("{subject}, the other build"), others);
        report.ratio(
            &format!("p50 of {subject} against the other build"),
            own.percentile_us(50) / others.percentile_us(50),
            None,
        );
    }
    let mut cpu = Vec::new();
    for (node, shim) in nodes.iter().zip(shims) {
        cpu.push(node.cpu_seconds(shim)? * 1e3 / rounds as f64);
    }
    report.figure("CPU time a cycle", "ms", cpu[0]);
    report.figure("CPU time a cycle, the other build", "ms", cpu[1]);
    report.ratio("CPU time against the other build", cpu[0] / cpu[1], None);
    Ok(report)
}

async fn measure(endpoint: &CellEndpoint, rounds: usize) -> Result<Times> {
    let mut client = endpoint.connect().await?;
    // What the first cell costs alone is no part of it.
    once(&mut client, &mut Times::default()).await?;
    let mut times = Times::default();
    for _ in 0..rounds {
        once(&mut client, &mut times).await?;
    }
    Ok(times)
}

async fn once(client: &mut CellClient, times: &mut Times) -> Result<()> {
    const CELL: &str = "cycle";
    let began = Instant::now();
    client.allocate(CELL).await?;
    let allocated = Instant::now();
    client.start(CELL, PROGRAM).await?;
    let started = Instant::now();
    client.stop(CELL).await?;
    let stopped = Instant::now();
    client.free(CELL).await?;
    let freed = Instant::now();
    times.allocate.push(allocated - began);
    times.start.push(started - allocated);
    times.stop.push(stopped - started);
    times.free.push(freed - stopped);
    times.whole.push(freed - began);
    Ok(())
}
