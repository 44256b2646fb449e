//! How often the node wakes up while nobody asks it anything: every time costs a laptop battery
//! or a neighbour on the same machine.

use std::time::Duration;

use anyhow::Result;
use mainstay_testkit::TlsClient;
use mainstay_testkit::procfs::context_switches;

use super::{Pair, Server, Setup, watch};
use crate::client::{Client, connect};
use crate::report::Report;

pub async fn run(setup: &Setup) -> Result<Report> {
    let span = setup.pick(Duration::from_secs(10), Duration::from_secs(2));
    let unused = setup.node();
    let pair = Pair::start(setup)?;
    let of_node = connection(&pair.tls, pair.node()).await?;
    let of_floor = connection(&pair.tls, pair.floor()).await?;
    // What a start and a first call leave to be done is no part of being idle.
    watch(Duration::from_secs(1)).await;

    let subjects = [
        ("mainstay, no connection", Server::from(&unused)),
        ("mainstay, one idle connection", pair.node()),
        ("floor, one idle connection", pair.floor()),
    ];
    let mut before = Vec::new();
    for (_, server) in subjects {
        before.push(context_switches(server.process.pid())?);
    }
    watch(span).await;
    let mut report = Report::new(
        "idle",
        format!("context switches of all threads in {span:?}"),
    );
    for ((subject, server), before) in subjects.into_iter().zip(before) {
        let switches = context_switches(server.process.pid())?.saturating_sub(before);
        report.figure(subject, "switches", switches as f64);
        let a_second = switches as f64 / span.as_secs_f64();
        report.figure(subject, "switches/s", a_second);
    }
    drop((of_node, of_floor));
    Ok(report)
}

async fn connection(tls: &TlsClient, server: Server<'_>) -> Result<Client> {
    let mut client = connect(tls, server.address).await?;
    client.version(()).await?;
    Ok(client)
}
