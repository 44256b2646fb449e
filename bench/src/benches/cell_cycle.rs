//! The life of a cell whose program would run on: allocated, started in, stopped, freed, and where
//! the time of it goes.

use std::time::Instant;

use anyhow::Result;

use super::{Setup, alone, percentiles};
use crate::cells::{CellClient, CellEndpoint, CellNode};
use crate::report::{Report, Target};
use crate::stats::Samples;

const PROGRAM: &str = "sleep 1000";
const TARGET_MS: f64 = 5.0;

#[derive(Default)]
struct Times {
    allocate: Samples,
    start: Samples,
    stop: Samples,
    free: Samples,
    whole: Samples,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let rounds = setup.pick(1000, 50);
    let node = CellNode::start(setup)?;
    let endpoint = node.endpoint();
    let mut times = alone(move || async move { measure(&endpoint, rounds).await }).await?;

    let mut report = Report::new(
        "cell-cycle",
        format!("{PROGRAM:?} in a new cell each time, {rounds} times, one after the other"),
    );
    for (subject, samples) in [
        ("Allocate", &mut times.allocate),
        ("Start", &mut times.start),
        ("Stop", &mut times.stop),
        ("Free", &mut times.free),
        ("all four", &mut times.whole),
    ] {
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
