//! Rate and server CPU time of unary calls by 64 concurrent callers, over one connection and over
//! eight.
//!
//! Client and server share the machine, so the rate is that of both together. The CPU time of the
//! server per call belongs to the server alone, and is the guarantee for unary calls.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;
use mainstay_testkit::TlsClient;
use mainstay_testkit::procfs::cpu_seconds;
use tokio::task::JoinSet;

use super::{Pair, Server, Setup};
use crate::client::{Client, connect};
use crate::report::{Report, Target};
use crate::stats::median;

const CALLERS: usize = 64;
const LAYOUTS: [(usize, &str); 2] = [(1, "1 connection × 64"), (8, "8 connections × 8")];

pub async fn run(setup: &Setup) -> Result<Report> {
    let pair = Pair::start(setup)?;
    let (rounds, calls) = setup.pick((5, 30_000), (1, 5_000));
    let mut report = Report::new(
        "version-throughput",
        format!("Version over mTLS, {CALLERS} callers at once, median of {rounds} × {calls} calls"),
    );
    for (connections, layout) in LAYOUTS {
        let node = Side::connect(pair.node(), &pair.tls, connections).await?;
        let floor = Side::connect(pair.floor(), &pair.tls, connections).await?;
        load(&node.clients, calls / 5).await?;
        load(&floor.clients, calls / 5).await?;
        let (mut of_node, mut of_floor) = (Rounds::default(), Rounds::default());
        for _ in 0..rounds {
            of_node.0.push(node.round(calls).await?);
            of_floor.0.push(floor.round(calls).await?);
        }
        let node = of_node.show(&mut report, &format!("mainstay, {layout}"));
        let floor = of_floor.show(&mut report, &format!("floor, {layout}"));
        report.ratio(
            &format!("calls/s against the floor, {layout}"),
            node.calls_per_second / floor.calls_per_second,
            Some(Target::AtLeast(0.8)),
        );
        report.ratio(
            &format!("server CPU time per call against the floor, {layout}"),
            node.cpu_us_per_call / floor.cpu_us_per_call,
            Some(Target::AtMost(1.25)),
        );
    }
    Ok(report)
}

struct Side<'a> {
    server: Server<'a>,
    clients: Vec<Client>,
}

/// One round of calls.
struct Round {
    calls: u64,
    took: Duration,
    cpu_seconds: f64,
}

#[derive(Default)]
struct Rounds(Vec<Round>);

struct Rate {
    calls_per_second: f64,
    cpu_us_per_call: f64,
}

impl<'a> Side<'a> {
    async fn connect(server: Server<'a>, tls: &TlsClient, connections: usize) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(connect(tls, server.address).await?);
        }
        Ok(Self { server, clients })
    }

    async fn round(&self, calls: u64) -> Result<Round> {
        let cpu = cpu_seconds(self.server.process.pid())?;
        let began = Instant::now();
        load(&self.clients, calls).await?;
        Ok(Round {
            calls,
            took: began.elapsed(),
            cpu_seconds: cpu_seconds(self.server.process.pid())? - cpu,
        })
    }
}

impl Rounds {
    fn show(&self, report: &mut Report, subject: &str) -> Rate {
        let rates = self.0.iter();
        let rates = rates.map(|round| round.calls as f64 / round.took.as_secs_f64());
        let calls: u64 = self.0.iter().map(|round| round.calls).sum();
        // Of all rounds together: the kernel counts in ticks of 10 ms.
        let cpu_seconds: f64 = self.0.iter().map(|round| round.cpu_seconds).sum();
        let rate = Rate {
            calls_per_second: median(rates.collect()),
            cpu_us_per_call: cpu_seconds * 1e6 / calls as f64,
        };
        report.figure(subject, "calls/s", rate.calls_per_second);
        report.figure(subject, "server CPU µs/call", rate.cpu_us_per_call);
        rate
    }
}

/// Makes this many calls, by 64 callers spread over the clients.
pub async fn load(clients: &[Client], calls: u64) -> Result<()> {
    let begun = Arc::new(AtomicU64::new(0));
    let mut callers = JoinSet::new();
    for client in clients.iter().cycle().take(CALLERS) {
        let (mut client, begun) = (client.clone(), Arc::clone(&begun));
        callers.spawn(async move {
            while begun.fetch_add(1, Ordering::Relaxed) < calls {
                client.version(()).await?;
            }
            Ok::<_, tonic::Status>(())
        });
    }
    while let Some(ended) = callers.join_next().await {
        ended??;
    }
    Ok(())
}
