//! How much memory the node has when it has just started, and what load leaves behind.
//!
//! The floor is the same program as the one that measures and shares its pages: compare resident
//! sizes, not proportional ones.

use anyhow::Result;
use mainstay_testkit::procfs::Memory;

use super::version_throughput::load;
use super::{Pair, Setup, megabytes};
use crate::client::connect;
use crate::report::{Report, Target};

const CONNECTIONS: usize = 8;
const TARGET_MB: f64 = 15.0;

pub async fn run(setup: &Setup) -> Result<Report> {
    let calls = setup.pick(50_000, 5_000);
    let mut report = Report::new(
        "memory",
        format!("idle, and after {calls} calls by 64 callers on {CONNECTIONS} connections"),
    );
    let pair = Pair::start(setup)?;
    let mut idle = f64::NAN;
    for (name, server) in [("mainstay", pair.node()), ("floor", pair.floor())] {
        let before = Memory::of(server.process.pid())?;
        let mut clients = Vec::new();
        for _ in 0..CONNECTIONS {
            clients.push(connect(&pair.tls, server.address).await?);
        }
        load(&clients, calls).await?;
        let after = Memory::of(server.process.pid())?;
        show(&mut report, &format!("{name}, started"), before);
        show(&mut report, &format!("{name}, after load"), after);
        if name == "mainstay" {
            idle = megabytes(before.resident);
        }
    }
    report.compare(
        "resident when idle",
        idle,
        " MB",
        Some(Target::AtMost(TARGET_MB)),
    );
    Ok(report)
}

fn show(report: &mut Report, subject: &str, memory: Memory) {
    report.figure(subject, "RSS MB", megabytes(memory.resident));
    report.figure(subject, "PSS MB", megabytes(memory.proportional));
    report.figure(subject, "anonymous MB", megabytes(memory.anonymous));
}
