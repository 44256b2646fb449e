//! How long the last ten lines of a large log take: from the node, asked on a connection that is
//! there, against `tail`.
//!
//! Making a process costs more than reading the end of a file, so a process of our own that does the
//! same, and the reading alone, are shown beside it. Our process is this whole program: what it
//! takes beyond the reading is loading that.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use mainstay_api::machine::LogsRequest;
use mainstay_journal::{LogQuery, LogStore};
use tokio::task::spawn_blocking;

use super::log_lines::{self, LINE_BYTES, LOG, RECORD_BYTES};
use super::{Setup, Single};
use crate::client::Client;
use crate::report::{Report, Target};
use crate::stats::Samples;

const LINES: u64 = 10;

pub async fn run(setup: &Setup) -> Result<Report> {
    let mebibytes: u64 = setup.pick(1024, 16);
    let times = setup.pick(100, 10);
    let single = Single::start(setup);
    let root = single.node.state().join("logs");
    let writer = log_lines::open(&root)?;
    let lines = (mebibytes << 20) / RECORD_BYTES;
    spawn_blocking(move || log_lines::write(writer, lines)).await??;

    let store = LogStore::open(&root)?;
    let mut client = single.connect().await?;
    let (mut api, mut within) = (Samples::default(), Samples::default());
    let (mut process, mut tail) = (Samples::default(), Samples::default());
    for _ in 0..times {
        let began = Instant::now();
        ask_tail(&mut client).await?;
        api.push(began.elapsed());
        let began = Instant::now();
        read_tail(&store, LOG, LINES).await?;
        within.push(began.elapsed());
        process.push(
            spawn_blocking({
                let root = root.clone();
                move || run_own(&root)
            })
            .await??,
        );
        tail.push(
            spawn_blocking({
                let file = log_lines::file(&root);
                move || run_tail(&file)
            })
            .await??,
        );
    }

    let mut report = Report::new(
        "log-tail",
        format!("the last {LINES} lines of a log of {mebibytes} MiB, {times} times, in turns"),
    );
    for (subject, samples) in [
        ("Logs over mTLS", &mut api),
        ("journal, the reading alone", &mut within),
        ("journal, a process", &mut process),
        ("tail -n 10, a process", &mut tail),
    ] {
        report.figure(subject, "p50 µs", samples.percentile_us(50));
        report.figure(subject, "p95 µs", samples.percentile_us(95));
    }
    report.ratio(
        "p50 of Logs over mTLS against tail -n 10",
        api.percentile_us(50) / tail.percentile_us(50),
        Some(Target::AtMost(2.0)),
    );
    report.ratio(
        "p50 of a process against tail -n 10",
        process.percentile_us(50) / tail.percentile_us(50),
        None,
    );
    Ok(report)
}

/// The part of this program that stands against `tail`.
pub fn print_tail(root: &Path, log: &str, lines: u64) -> Result<()> {
    let store = LogStore::open(root)?;
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let text = runtime.block_on(read_tail(&store, log, lines))?;
    std::io::stdout().write_all(&text)?;
    Ok(())
}

async fn read_tail(store: &LogStore, log: &str, lines: u64) -> Result<Vec<u8>> {
    let query = LogQuery {
        tail: Some(lines),
        ..LogQuery::default()
    };
    let mut stream = store.read(log, query).await?;
    let mut text = Vec::new();
    while let Some(chunk) = stream.next().await? {
        chunk.append_text(&mut text);
    }
    Ok(text)
}

async fn ask_tail(client: &mut Client) -> Result<()> {
    let request = LogsRequest {
        namespace: "system".to_owned(),
        id: LOG.to_owned(),
        tail_lines: i32::try_from(LINES)?,
        ..LogsRequest::default()
    };
    let mut stream = client.logs(request).await?.into_inner();
    let mut bytes = 0;
    while let Some(data) = stream.message().await? {
        bytes += data.bytes.len() as u64;
    }
    anyhow::ensure!(bytes == LINES * LINE_BYTES, "{bytes} bytes came");
    Ok(())
}

fn run_own(root: &Path) -> Result<Duration> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg("read-tail").arg(root);
    command.args([LOG, &LINES.to_string()]);
    time(command)
}

fn run_tail(file: &Path) -> Result<Duration> {
    let mut command = Command::new("tail");
    command.args(["-n", &LINES.to_string()]).arg(file);
    time(command)
}

/// From making the process to having all it printed.
fn time(mut command: Command) -> Result<Duration> {
    let began = Instant::now();
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} cannot be run", command.get_program().display()))?;
    let took = began.elapsed();
    let printed = output.stdout.split(|byte| *byte == b'\n').count() as u64 - 1;
    anyhow::ensure!(
        output.status.success() && printed == LINES,
        "{} printed {printed} lines and ended with {}",
        command.get_program().display(),
        output.status
    );
    Ok(took)
}
