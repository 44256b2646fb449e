//! `mainstay-bench` measures speed and size of the node against the real floor or peer.
//!
//! Both sides of a comparison run in turns within one run, so that a noisy machine disturbs both
//! alike. Each target is printed as met or missed; a missed one is no failure of the program, and
//! no test asserts a time.

mod benches;
mod cells;
mod client;
mod floor;
mod peer;
mod report;
mod runc;
mod ssh;
mod stats;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand, ValueEnum as _};
use tokio::runtime::Runtime;
use tokio::signal::unix::{SignalKind, signal};

use benches::{Bench, Setup};

/// Measure the node and its journals against the floor
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
struct Cli {
    /// Benchmarks to run [default: all]
    #[arg(value_enum)]
    benches: Vec<Bench>,

    /// Run briefly, to see that it works; the figures are not representative
    #[arg(long)]
    quick: bool,

    /// Binary to measure [default: mainstay beside this program]
    #[arg(long, value_name = "FILE")]
    binary: Option<PathBuf>,

    /// Another build to measure in turns with it, such as an earlier one (cell-cycle only)
    #[arg(long, value_name = "FILE")]
    against: Option<PathBuf>,

    /// Directory for the results as JSON [default: results in the folder of this crate]
    #[arg(long, value_name = "DIR")]
    results: Option<PathBuf>,

    #[command(subcommand)]
    part: Option<Part>,
}

/// The other side of a comparison, run as a process of its own.
#[derive(Debug, Subcommand)]
enum Part {
    /// Serve a constant answer with the certificates of a node
    #[command(hide = true)]
    Floor { pki: PathBuf },
    /// Print the last lines of a log
    #[command(hide = true)]
    ReadTail {
        root: PathBuf,
        log: String,
        lines: u64,
    },
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    if let Some(Part::ReadTail { root, log, lines }) = &cli.part {
        return benches::print_tail(root, log, *lines);
    }
    let runtime = Runtime::new()?;
    let done = runtime.block_on(async {
        let (mut term, mut int) = (
            signal(SignalKind::terminate())?,
            signal(SignalKind::interrupt())?,
        );
        // Dropping the work drops the processes it has started, which kills them.
        tokio::select! {
            done = work(cli) => done,
            _ = term.recv() => anyhow::bail!("stopped by SIGTERM"),
            _ = int.recv() => anyhow::bail!("stopped by SIGINT"),
        }
    });
    // A thread that still writes a log or reads a pipe is not waited for.
    runtime.shutdown_background();
    done
}

async fn work(cli: Cli) -> Result<()> {
    if let Some(Part::Floor { pki }) = cli.part {
        return floor::serve(&pki).await;
    }
    let setup = Setup {
        binary: match cli.binary {
            Some(binary) => binary,
            None => binary_beside_this()?,
        },
        against: cli.against,
        quick: cli.quick,
    };
    let results = cli.results.unwrap_or_else(default_results);
    let benches = if cli.benches.is_empty() {
        Bench::value_variants().to_vec()
    } else {
        cli.benches
    };
    anyhow::ensure!(
        setup.against.is_none() || benches.iter().all(|bench| bench.compares_builds()),
        "--against compares builds in cell-cycle alone; name that benchmark"
    );
    for bench in benches {
        let report = bench
            .run(&setup)
            .await
            .with_context(|| format!("cannot run benchmark {bench}"))?;
        let kept = report.keep(&results, setup.quick)?;
        write!(std::io::stdout(), "{report}  {}\n\n", kept.display())?;
    }
    Ok(())
}

fn binary_beside_this() -> Result<PathBuf> {
    let binary = std::env::current_exe()?.with_file_name("mainstay");
    anyhow::ensure!(
        binary.exists(),
        "{} does not exist; build it with cargo build --release -p mainstay, or name one with --binary",
        binary.display()
    );
    Ok(binary)
}

/// Cargo sets the directory of the crate; without cargo the program is run from the root.
fn default_results() -> PathBuf {
    std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| PathBuf::from("bench"), PathBuf::from)
        .join("results")
}
