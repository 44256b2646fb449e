//! One call to 100 nodes, each a real node in a process of its own on this machine.
//!
//! All of them share the machine with the client, so what one call to 100 nodes could take at the
//! least is measured the same way: the client asks the 100 by itself, all at once on connections
//! that are there, and the slowest answer counts. The difference is what forwarding and merging
//! cost. Dead nodes are of two kinds: those that refuse, and those that take the connection and
//! never say a word.

use std::net::TcpListener;
use std::time::Instant;

use anyhow::{Result, ensure};
use futures_util::StreamExt;
use futures_util::future::try_join_all;
use mainstay_api::machine::ListRequest;
use mainstay_testkit::{TestFleet, to_nodes};

use super::Setup;
use crate::client::{Client, connect};
use crate::report::{Report, Target};
use crate::stats::Samples;

const DEAD: usize = 10;

pub async fn run(setup: &Setup) -> Result<Report> {
    let (count, rounds) = setup.pick((100, 300), (20, 30));
    let fleet = TestFleet::of_program(&setup.binary, count + 1);
    // The first node forwards, and is not among those that are asked.
    let names = fleet.names().split_off(1);
    let tls = fleet.nodes[0].admin().tls_client()?;
    let mut entry = connect(&tls, fleet.nodes[0].listen()).await?;
    let mut direct = Vec::new();
    for node in &fleet.nodes[1..] {
        direct.push(connect(&tls, node.listen()).await?);
    }
    let living = &names[..count - DEAD];
    let refusing = dead(DEAD, false)?;
    let with_refusing: Vec<String> = [living, &refusing.names].concat();
    let silent = dead(DEAD, true)?;
    let with_silent: Vec<String> = [living, &silent.names].concat();

    let mut report = Report::new(
        "fan-out",
        format!("{count} nodes in one call, {rounds} calls each, in turns"),
    );
    let mut times: [Samples; 7] = Default::default();
    // The first round makes the connections and is not counted.
    for round in 0..=rounds {
        let took = [
            slowest(&direct).await?,
            unary(&mut entry, &names).await?,
            unary(&mut entry, living).await?,
            unary(&mut entry, &with_refusing).await?,
            streamed(&mut entry, living, living.len()).await?,
            streamed(&mut entry, &with_refusing, living.len()).await?,
            streamed(&mut entry, &with_silent, living.len()).await?,
        ];
        if round > 0 {
            for (samples, took) in times.iter_mut().zip(took) {
                samples.push(took);
            }
        }
    }
    let mut p99 = Vec::new();
    for (subject, samples) in [
        "asked directly, the slowest of all",
        "one call to all",
        "one call to the living",
        "one call, 10 of them refusing",
        "a stream of the living",
        "their part of a stream, 10 refusing",
        "their part of a stream, 10 silent",
    ]
    .into_iter()
    .zip(&mut times)
    {
        report.figure(subject, "p50 µs", samples.percentile_us(50));
        report.figure(subject, "p99 µs", samples.percentile_us(99));
        p99.push(samples.percentile_us(99));
    }
    let at_most = |bound| Some(Target::AtMost(bound));
    report.ratio(
        "p99 against the slowest node",
        p99[1] / p99[0],
        at_most(1.5),
    );
    report.ratio("p99 with 10 refusing", p99[3] / p99[2], at_most(1.25));
    report.ratio(
        "p99 of a stream with 10 refusing",
        p99[5] / p99[4],
        at_most(1.25),
    );
    report.ratio(
        "p99 of a stream with 10 silent",
        p99[6] / p99[4],
        at_most(1.25),
    );
    let own = fleet.nodes[0].listen().to_string();
    let bystander = connect(&tls, fleet.nodes[0].listen()).await?;
    let [alone, beside] = attacked(&entry, &own, &bystander, rounds).await?;
    report.figure("Version alone", "p99 µs", alone);
    report.figure("Version beside the attack", "p99 µs", beside);
    // For information: on two cores it measures the scheduler of the kernel too.
    report.ratio(
        "p99 of Version beside a call that names the node 2,300 times",
        beside / alone,
        None,
    );
    Ok(report)
}

/// The largest message of a node.
const MAX_MESSAGE_BYTES: usize = 32 << 20;

/// The p99 of `Version` for somebody else, without and with a call that has this node answer
/// `Processes` thousands of times.
async fn attacked(
    attacker: &Client,
    own: &str,
    bystander: &Client,
    rounds: usize,
) -> Result<[f64; 2]> {
    const NAMES: usize = 2300;
    let mut bystander = bystander.clone();
    let mut version = async || -> Result<std::time::Duration> {
        let began = Instant::now();
        bystander.version(()).await?;
        Ok(began.elapsed())
    };
    let [mut alone, mut beside]: [Samples; 2] = Default::default();
    for _ in 0..rounds {
        alone.push(version().await?);
    }
    // The answer is as large as a message may be.
    let mut attacker = attacker
        .clone()
        .max_decoding_message_size(MAX_MESSAGE_BYTES);
    let names = vec![own.to_owned(); NAMES];
    let attack =
        tokio::spawn(async move { attacker.processes(to_nodes((), &names)).await.map(drop) });
    while !attack.is_finished() {
        beside.push(version().await?);
    }
    attack.await??;
    Ok([alone.percentile_us(99), beside.percentile_us(99)])
}

/// Asks every node by itself, all at once.
async fn slowest(clients: &[Client]) -> Result<std::time::Duration> {
    let began = Instant::now();
    try_join_all(
        clients
            .iter()
            .cloned()
            .map(|mut client| async move { client.version(()).await }),
    )
    .await?;
    Ok(began.elapsed())
}

async fn unary(entry: &mut Client, names: &[String]) -> Result<std::time::Duration> {
    let request = to_nodes((), names);
    let began = Instant::now();
    let reply = entry.version(request).await?.into_inner();
    ensure!(reply.messages.len() == names.len(), "a node is missing");
    Ok(began.elapsed())
}

/// Until the living have all answered; the rest is not waited for.
async fn streamed(
    entry: &mut Client,
    names: &[String],
    living: usize,
) -> Result<std::time::Duration> {
    let request = ListRequest {
        root: "/proc/version".to_owned(),
        ..ListRequest::default()
    };
    let request = to_nodes(request, names);
    let began = Instant::now();
    let mut stream = entry.list(request).await?.into_inner();
    let mut answered = 0;
    while answered < living {
        let Some(info) = stream.next().await else {
            anyhow::bail!("a node is missing");
        };
        let failed = info?
            .metadata
            .is_some_and(|metadata| !metadata.error.is_empty());
        answered += usize::from(!failed);
    }
    Ok(began.elapsed())
}

struct Dead {
    names: Vec<String>,
    /// Those that are silent: the kernel takes connections for them, and nobody ever reads.
    _listeners: Vec<TcpListener>,
}

fn dead(count: usize, silent: bool) -> Result<Dead> {
    let mut names = Vec::new();
    let mut listeners = Vec::new();
    for _ in 0..count {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        names.push(listener.local_addr()?.to_string());
        if silent {
            listeners.push(listener);
        }
    }
    Ok(Dead {
        names,
        _listeners: listeners,
    })
}
