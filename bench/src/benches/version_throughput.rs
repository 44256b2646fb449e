//! How many calls a second 64 callers get, over one connection and over eight.
//!
//! Client and server share the machine, so the rate of both together is what is seen. The
//! processor time of the server for each call is shown beside it: it belongs to the server alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;
use mainstay_testkit::TlsClient;
use tokio::task::JoinSet;

use super::{Pair, Server, Setup};
use crate::client::{Client, connect};
use crate::report::{Report, Target};
use crate::stats::median;
use mainstay_testkit::procfs::cpu_seconds;

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
        let (mut of_node, mut of_floor) = (Rates::default(), Rates::default());
        for _ in 0..rounds {
            of_node.add(node.round(calls).await?);
            of_floor.add(floor.round(calls).await?);
        }
        let node = of_node.show(&mut report, &format!("mainstay, {layout}"));
        let floor = of_floor.show(&mut report, &format!("floor, {layout}"));
        report.ratio(
            &format!("calls/s against the floor, {layout}"),
            node.calls_per_second / floor.calls_per_second,
            Some(Target::AtLeast(0.8)),
        );
        report.ratio(
            &format!("server time a call against the floor, {layout}"),
            node.cpu_us_per_call / floor.cpu_us_per_call,
            None,
        );
    }
    Ok(report)
}

struct Side<'a> {
    server: Server<'a>,
    clients: Vec<Client>,
}

#[derive(Clone, Copy)]
struct Rate {
    calls_per_second: f64,
    cpu_us_per_call: f64,
}

#[derive(Default)]
struct Rates {
    calls_per_second: Vec<f64>,
    cpu_us_per_call: Vec<f64>,
}

impl<'a> Side<'a> {
    async fn connect(server: Server<'a>, tls: &TlsClient, connections: usize) -> Result<Self> {
        let mut clients = Vec::new();
        for _ in 0..connections {
            clients.push(connect(tls, server.address).await?);
        }
        Ok(Self { server, clients })
    }

    async fn round(&self, calls: u64) -> Result<Rate> {
        let cpu = cpu_seconds(self.server.process.pid())?;
        let began = Instant::now();
        load(&self.clients, calls).await?;
        let took = began.elapsed();
        Ok(Rate {
            calls_per_second: calls as f64 / took.as_secs_f64(),
            cpu_us_per_call: (cpu_seconds(self.server.process.pid())? - cpu) * 1e6 / calls as f64,
        })
    }
}

impl Rates {
    fn add(&mut self, rate: Rate) {
        self.calls_per_second.push(rate.calls_per_second);
        self.cpu_us_per_call.push(rate.cpu_us_per_call);
    }

    fn show(self, report: &mut Report, subject: &str) -> Rate {
        let rate = Rate {
            calls_per_second: median(self.calls_per_second),
            cpu_us_per_call: median(self.cpu_us_per_call),
        };
        report.figure(subject, "calls/s", rate.calls_per_second);
        report.figure(subject, "server µs/call", rate.cpu_us_per_call);
        rate
    }
}

/// Makes so many calls, by 64 callers spread over the clients.
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
