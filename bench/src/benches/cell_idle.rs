//! Memory and CPU time of idle cells: of the shims, of the programs in the cells and of the daemon.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use mainstay_api::runtime::CellStatus;
use mainstay_testkit::TestContainerd;
use mainstay_testkit::procfs::{self, Memory, context_switches, cpu_seconds};

use super::{Setup, watch};
use crate::cells::{CellClient, CellNode};
use crate::report::{Report, Target};

/// One file without libraries: what it has of its own is next to nothing.
const PROGRAM: &str = "/bin/busybox sleep 1000000";

/// Both processes of a cell, as the host sees them.
struct Processes {
    shim: u32,
    program: u32,
}

/// The processes that stand by, and what they have used so far.
struct Usage {
    cpu_seconds: f64,
    switches: u64,
}

pub async fn run(setup: &Setup) -> Result<Report> {
    let (count, span) = setup.pick(
        (1000, Duration::from_secs(10)),
        (50, Duration::from_secs(2)),
    );
    let containerd = TestContainerd::without_cri();
    containerd.run_container("idle", &[], &["sleep", "1000000"]);
    let container_shim = procfs::parent(containerd.container_pid("idle"))?;
    let node = CellNode::start(setup)?;
    let mut client = node.endpoint().connect().await?;
    let daemon = node.node.pid();

    // The first cell also starts what all later ones share.
    fill(&mut client, 0..1).await?;
    settle(&mut client).await?;
    let daemon_before = Memory::of(daemon)?.resident;
    let machine_before = procfs::available()?;
    fill(&mut client, 1..count + 1).await?;
    let daemon_filled = Memory::of(daemon)?.resident;
    settle(&mut client).await?;
    let daemon_after = Memory::of(daemon)?.resident;
    let machine_after = procfs::available()?;

    let cells = processes(&client.list().await?)?;
    ensure!(cells.len() == count + 1, "{} cells are there", cells.len());
    let (mut shims, mut programs) = (0, 0);
    for cell in &cells {
        shims += Memory::of(cell.shim)?.proportional;
        programs += Memory::of(cell.program)?.proportional;
    }
    let each = |bytes: u64, of: usize| kibibytes(bytes) / of as f64;
    let (shim, program) = (each(shims, cells.len()), each(programs, cells.len()));
    let grown = |before: u64, after: u64| each(after.saturating_sub(before), count);

    let zygote = procfs::parent(cells[0].shim)?;
    let subjects = [
        ("daemon", vec![daemon]),
        ("the process all shims are forked from", vec![zygote]),
        ("all shims", cells.iter().map(|cell| cell.shim).collect()),
    ];
    // What the looking has caused is no part of being idle.
    watch(Duration::from_secs(1)).await;
    let mut before = Vec::new();
    for (_, pids) in &subjects {
        before.push(Usage::of(pids)?);
    }
    watch(span).await;

    let mut report = Report::new(
        "cell-idle",
        format!("{count} cells with {PROGRAM:?} in each; idle for {span:?}"),
    );
    report.figure("shim", "PSS KiB each", shim);
    report.figure("program in the cell", "PSS KiB each", program);
    let container = kibibytes(Memory::of(container_shim)?.proportional);
    report.figure(
        "containerd-shim, of one container",
        "PSS KiB each",
        container,
    );
    for ((subject, pids), before) in subjects.iter().zip(before) {
        let after = Usage::of(pids)?;
        let switches = after.switches.saturating_sub(before.switches);
        report.figure(subject, "switches", switches as f64);
        report.figure(subject, "CPU s", after.cpu_seconds - before.cpu_seconds);
    }
    report.figure(
        "the machine, kernel included",
        "KiB less available, a cell",
        grown(machine_after, machine_before),
    );
    report.compare(
        "shim and program, PSS a cell",
        shim + program,
        " KiB",
        Some(Target::AtMost(600.0)),
    );
    report.compare(
        "growth of the daemon, RSS a cell",
        grown(daemon_before, daemon_after),
        " KiB",
        Some(Target::AtMost(4.0)),
    );
    report.compare(
        "the same before a List of all cells",
        grown(daemon_before, daemon_filled),
        " KiB",
        None,
    );
    report.ratio(
        "PSS of containerd-shim against a shim",
        container / shim,
        None,
    );
    Ok(report)
}

async fn fill(client: &mut CellClient, numbers: std::ops::Range<usize>) -> Result<()> {
    for number in numbers {
        let cell = format!("idle{number}");
        client.allocate(&cell).await?;
        client.start(&cell, PROGRAM).await?;
    }
    Ok(())
}

/// An answer about all cells: when it is here, all that went before it has been dealt with.
async fn settle(client: &mut CellClient) -> Result<()> {
    client.list().await.map(drop)
}

fn processes(cells: &[CellStatus]) -> Result<Vec<Processes>> {
    let of = |cell: &CellStatus| -> Option<Processes> {
        Some(Processes {
            shim: u32::try_from(cell.shim_pid).ok().filter(|pid| *pid > 0)?,
            program: u32::try_from(cell.executables.first()?.pid).ok()?,
        })
    };
    let all: Option<Vec<Processes>> = cells.iter().map(of).collect();
    all.context("nothing looks after one of the cells")
}

impl Usage {
    fn of(pids: &[u32]) -> Result<Self> {
        let mut usage = Self {
            cpu_seconds: 0.0,
            switches: 0,
        };
        for pid in pids {
            usage.cpu_seconds += cpu_seconds(*pid)?;
            usage.switches += context_switches(*pid)?;
        }
        Ok(usage)
    }
}

fn kibibytes(bytes: u64) -> f64 {
    bytes as f64 / 1024.0
}
