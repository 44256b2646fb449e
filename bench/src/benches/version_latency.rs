//! Latency of one call on a warm connection, with nothing else running.
//!
//! For information: on virtual CPUs it depends on where the two sides are scheduled more than on
//! the server. The guarantee for unary calls is the server's CPU time, in `version-throughput`.

use std::time::Instant;

use anyhow::Result;
use mainstay_testkit::TlsClient;

use super::{Pair, Setup, alone};
use crate::client::{Client, connect};
use crate::report::Report;
use crate::stats::Samples;

const CALLS_A_ROUND: usize = 500;
const WARM_UP_CALLS: usize = 2000;

pub async fn run(setup: &Setup) -> Result<Report> {
    let pair = Pair::start(setup)?;
    let rounds = setup.pick(40, 4);
    let tls = pair.tls.clone();
    let (node, floor) = (pair.node.listen(), pair.floor.address());
    let (mut node, mut floor) =
        alone(move || async move { measure(&tls, [node, floor], rounds).await }).await?;

    let mut report = Report::new(
        "version-latency",
        format!(
            "Version over mTLS on one warm connection, {} calls each, in turns of {CALLS_A_ROUND}",
            rounds * CALLS_A_ROUND
        ),
    );
    for (subject, samples) in [("mainstay", &mut node), ("floor", &mut floor)] {
        report.figure(subject, "p50 µs", samples.percentile_us(50));
        report.figure(subject, "p95 µs", samples.percentile_us(95));
        report.figure(subject, "p99 µs", samples.percentile_us(99));
    }
    report.ratio(
        "p50 against the floor",
        node.percentile_us(50) / floor.percentile_us(50),
        None,
    );
    Ok(report)
}

async fn measure(
    tls: &TlsClient,
    [node, floor]: [std::net::SocketAddr; 2],
    rounds: usize,
) -> Result<(Samples, Samples)> {
    let mut node = connect(tls, node).await?;
    let mut floor = connect(tls, floor).await?;
    calls(&mut node, WARM_UP_CALLS).await?;
    calls(&mut floor, WARM_UP_CALLS).await?;
    let (mut of_node, mut of_floor) = (Samples::default(), Samples::default());
    for _ in 0..rounds {
        of_node.append(calls(&mut node, CALLS_A_ROUND).await?);
        of_floor.append(calls(&mut floor, CALLS_A_ROUND).await?);
    }
    Ok((of_node, of_floor))
}

async fn calls(client: &mut Client, count: usize) -> Result<Samples> {
    let mut samples = Samples::default();
    for _ in 0..count {
        let began = Instant::now();
        client.version(()).await?;
        samples.push(began.elapsed());
    }
    Ok(samples)
}
