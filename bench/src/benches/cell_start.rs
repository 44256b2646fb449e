//! How long a program takes in a cell of its own, from the call that starts it to the end of the
//! stream that tells of its end, against others that isolate a program.
//!
//! The first start in a cell is the one that makes its namespaces. `unshare` makes the same ones
//! and nothing more; runc and `ctr` begin with nothing and leave nothing behind, so they stand
//! against the whole life of a cell.

use std::process::Command;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Result;
use mainstay_testkit::TestContainerd;

use super::{Setup, alone, percentiles};
use crate::cells::{CellClient, CellEndpoint, CellNode};
use crate::peer::ended;
use crate::report::{Report, Target};
use crate::runc::Runc;
use crate::stats::Samples;

const PROGRAM: &str = "/bin/true";
/// The cell that is there all the time.
const KEPT: &str = "kept";

struct Peers {
    runc: Runc,
    containerd: TestContainerd,
}

#[derive(Default)]
struct Times {
    fresh: Samples,
    whole: Samples,
    again: Samples,
    unshare: Samples,
    runc: Samples,
    ctr: Samples,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let rounds = setup.pick(200, 10);
    let peers = Arc::new(Peers {
        runc: Runc::prepare(PROGRAM)?,
        containerd: TestContainerd::without_cri(),
    });
    let node = CellNode::start(setup)?;
    let endpoint = node.endpoint();
    let mut times = alone(move || async move { measure(&endpoint, &peers, rounds).await }).await?;

    let mut report = Report::new(
        "cell-start",
        format!("{PROGRAM}, isolated in every way, {rounds} times, in turns"),
    );
    for (subject, samples) in [
        ("new cell, Start to exit", &mut times.fresh),
        ("new cell, Allocate to Free", &mut times.whole),
        ("cell that is there, Start to exit", &mut times.again),
        ("unshare", &mut times.unshare),
        ("runc run", &mut times.runc),
        ("ctr run --rm", &mut times.ctr),
    ] {
        percentiles(&mut report, subject, samples);
    }
    let fresh = times.fresh.percentile_us(50);
    let whole = times.whole.percentile_us(50);
    let unshare = times.unshare.percentile_us(50);
    report.ratio(
        "p50 of Start to exit against unshare",
        fresh / unshare,
        Some(Target::AtMost(2.0)),
    );
    report.ratio(
        "p50 of Allocate to Free against unshare",
        whole / unshare,
        None,
    );
    for (what, peer, target) in [
        (
            "p50 of runc run against Allocate to Free",
            &mut times.runc,
            4.0,
        ),
        (
            "p50 of ctr run against Allocate to Free",
            &mut times.ctr,
            15.0,
        ),
    ] {
        let ratio = peer.percentile_us(50) / whole;
        report.ratio(what, ratio, Some(Target::AtLeast(target)));
    }
    Ok(report)
}

async fn measure(endpoint: &CellEndpoint, peers: &Peers, rounds: usize) -> Result<Times> {
    let mut client = endpoint.connect().await?;
    client.allocate(KEPT).await?;
    // What only the first of each kind costs is no part of it.
    round(&mut client, peers, 0, &mut Times::default()).await?;
    let mut times = Times::default();
    for number in 1..=rounds {
        round(&mut client, peers, number, &mut times).await?;
    }
    client.free(KEPT).await?;
    Ok(times)
}

/// The kernel removes namespaces long after their processes exited, at the cost of the next subject:
/// so each runs after every other in turn.
async fn round(
    client: &mut CellClient,
    peers: &Peers,
    number: usize,
    times: &mut Times,
) -> Result<()> {
    // A prime, so that every step from one to the next comes by all of them.
    const SUBJECTS: usize = 5;
    let step = 1 + number % (SUBJECTS - 1);
    let name = format!("r{number}");
    for turn in 0..SUBJECTS {
        match (number + turn * step) % SUBJECTS {
            0 => new_cell(client, &name, times).await?,
            1 => {
                let began = Instant::now();
                start_to_exit(client, KEPT).await?;
                times.again.push(began.elapsed());
            }
            2 => times.unshare.push(ended(unshare())?),
            3 => times.runc.push(ended(peers.runc.run(&name))?),
            _ => {
                let ctr = peers.containerd.run_command(&name, &[PROGRAM]);
                times.ctr.push(ended(ctr)?);
            }
        }
    }
    Ok(())
}

async fn new_cell(client: &mut CellClient, name: &str, times: &mut Times) -> Result<()> {
    let began = Instant::now();
    client.allocate(name).await?;
    let started = Instant::now();
    start_to_exit(client, name).await?;
    times.fresh.push(started.elapsed());
    client.free(name).await?;
    times.whole.push(began.elapsed());
    Ok(())
}

async fn start_to_exit(client: &mut CellClient, cell: &str) -> Result<()> {
    let pid = client.start(cell, PROGRAM).await?;
    client.until_end(pid).await
}

fn unshare() -> Command {
    let mut command = Command::new("unshare");
    command
        .args(["--pid", "--fork", "--mount", "--mount-proc"])
        .args(["--ipc", "--uts", "--cgroup", "--net"])
        .arg(PROGRAM);
    command
}
