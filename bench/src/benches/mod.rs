//! One file per benchmark; this one has the list and what they share.

mod cell_cycle;
mod cell_idle;
mod cell_output;
mod cell_start;
mod copy;
mod events;
mod fan_out;
mod idle;
mod list;
mod log_follow;
mod log_lines;
mod log_tail;
mod memory;
mod processes;
mod read;
mod services;
mod start;
mod upgrade_gap;
mod version_latency;
mod version_throughput;

use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;
use mainstay_testkit::{ServerProcess, TestNode, TlsClient};

use crate::client::{Client, connect};
use crate::floor::Floor;
use crate::report::Report;
use crate::stats::Samples;

pub use log_tail::print_tail;

#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum Bench {
    /// Latency of one call at a time
    VersionLatency,
    /// Rate and server CPU time with 64 concurrent callers
    VersionThroughput,
    /// Memory, idle and after load
    Memory,
    /// From the start to the first response
    Start,
    /// The API's gap while the node is upgraded
    UpgradeGap,
    /// Wake-ups of an idle node
    Idle,
    /// Follow of a log that is written at full speed
    LogFollow,
    /// The last lines of a large log
    LogTail,
    /// Events to 100 subscribers
    Events,
    /// The list of processes, with a thousand more than there are
    Processes,
    /// Read of a large file
    Read,
    /// Copy of a tree of many files
    Copy,
    /// List of a million entries
    List,
    /// One call to 100 nodes, and with 10 of them dead
    FanOut,
    /// A program in a new cell, from start to exit
    CellStart,
    /// Allocate, Start, Stop and Free of a cell
    CellCycle,
    /// A thousand idle cells
    CellIdle,
    /// Output of a program in a cell that prints as fast as it can
    CellOutput,
    /// Start, restart and rest of services
    Services,
}

/// The options of a run.
#[derive(Debug)]
pub struct Setup {
    pub binary: PathBuf,
    /// Another build, measured in turns with it.
    pub against: Option<PathBuf>,
    pub quick: bool,
}

impl Setup {
    /// Starts the node that is measured.
    fn node(&self) -> TestNode {
        TestNode::builder().program(&self.binary).start()
    }

    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

impl Bench {
    /// Returns whether it can measure another build in turns.
    pub fn compares_builds(self) -> bool {
        matches!(self, Self::CellCycle)
    }

    pub async fn run(self, setup: &Setup) -> Result<Report> {
        match self {
            Self::VersionLatency => version_latency::run(setup).await,
            Self::VersionThroughput => version_throughput::run(setup).await,
            Self::Memory => memory::run(setup).await,
            Self::Start => start::run(setup).await,
            Self::UpgradeGap => upgrade_gap::run(setup).await,
            Self::Idle => idle::run(setup).await,
            Self::LogFollow => log_follow::run(setup).await,
            Self::LogTail => log_tail::run(setup).await,
            Self::Events => events::run(setup).await,
            Self::Processes => processes::run(setup).await,
            Self::Read => read::run(setup).await,
            Self::Copy => copy::run(setup).await,
            Self::List => list::run(setup).await,
            Self::FanOut => fan_out::run(setup).await,
            Self::CellStart => cell_start::run(setup).await,
            Self::CellCycle => cell_cycle::run(setup).await,
            Self::CellIdle => cell_idle::run(setup).await,
            Self::CellOutput => cell_output::run(setup).await,
            Self::Services => services::run(setup).await,
        }
    }
}

impl fmt::Display for Bench {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let value = self.to_possible_value();
        f.write_str(value.as_ref().map_or("", |value| value.get_name()))
    }
}

/// The node alone, where the peer is another program.
struct Single {
    node: TestNode,
}

impl Single {
    fn start(setup: &Setup) -> Self {
        Self { node: setup.node() }
    }

    /// A connection that has been used.
    async fn connect(&self) -> Result<Client> {
        let tls = self.node.admin().tls_client()?;
        let mut client = connect(&tls, self.node.listen()).await?;
        client.version(()).await?;
        Ok(client)
    }
}

/// Measures latencies on a thread of its own: a connection and its caller do not wake each other
/// across threads there, and the rest of the time is the server's.
async fn alone<T: Send + 'static, F: Future<Output = Result<T>>>(
    work: impl FnOnce() -> F + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        runtime.block_on(work())
    })
    .await?
}

/// Passes time in which something is measured, not waited for.
async fn watch(span: Duration) {
    let _ = tokio::time::timeout(span, std::future::pending::<()>()).await;
}

fn percentiles(report: &mut Report, subject: &str, samples: &mut Samples) {
    report.figure(subject, "p50 ms", samples.percentile_us(50) / 1e3);
    report.figure(subject, "p95 ms", samples.percentile_us(95) / 1e3);
    report.figure(subject, "p99 ms", samples.percentile_us(99) / 1e3);
}

fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// The two servers side by side.
struct Pair {
    floor: Floor,
    tls: TlsClient,
    node: TestNode,
}

/// Either of the two, for what is measured of both.
#[derive(Clone, Copy)]
struct Server<'a> {
    process: &'a ServerProcess,
    address: SocketAddr,
}

impl Pair {
    fn start(setup: &Setup) -> Result<Self> {
        let node = setup.node();
        Ok(Self {
            floor: Floor::start(&node.state())?,
            tls: node.admin().tls_client()?,
            node,
        })
    }

    fn node(&self) -> Server<'_> {
        Server::from(&self.node)
    }

    fn floor(&self) -> Server<'_> {
        Server::from(&self.floor)
    }
}

impl<'a> From<&'a TestNode> for Server<'a> {
    fn from(node: &'a TestNode) -> Self {
        Self {
            process: node.process(),
            address: node.listen(),
        }
    }
}

impl<'a> From<&'a Floor> for Server<'a> {
    fn from(floor: &'a Floor) -> Self {
        Self {
            process: floor.process(),
            address: floor.address(),
        }
    }
}
