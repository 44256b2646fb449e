//! How fast lines reach someone who follows a log while it is written at full speed: from the
//! journal itself, through the API over TLS, and from `tail -f`.
//!
//! Every reader starts on an empty log and the same writer begins when it listens. The rate is
//! that of both together; the writer with nobody reading shows what it alone would come to.

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use anyhow::{Context as _, Result};
use mainstay_api::machine::LogsRequest;
use mainstay_journal::{LogQuery, LogStore};
use tempfile::TempDir;
use tokio::task::spawn_blocking;

use super::log_lines::{self, LINE_BYTES, LOG, RECORD_BYTES};
use super::{Pair, Setup};
use crate::client::connect;
use crate::report::Report;
use crate::stats::median;

/// As much as a pipe holds.
const READ_BYTES: usize = 64 << 10;

pub async fn run(setup: &Setup) -> Result<Report> {
    let (rounds, lines) = setup.pick((5, 1_000_000), (1, 100_000));
    let (mut alone, mut journal, mut api, mut tail) = (vec![], vec![], vec![], vec![]);
    for _ in 0..rounds {
        alone.push(unread(lines).await?);
        journal.push(by_journal(lines).await?);
        api.push(by_api(setup, lines).await?);
        tail.push(by_tail(lines).await?);
    }
    let mut report = Report::new(
        "log-follow",
        format!(
            "{lines} lines of {LINE_BYTES} bytes, followed while written; median of {rounds} rounds"
        ),
    );
    let mut show = |subject, rates| {
        let lines_per_second = median(rates);
        report.figure(subject, "lines/s", lines_per_second);
        let text = lines_per_second * LINE_BYTES as f64 / 1e6;
        report.figure(subject, "MB/s of text", text);
        lines_per_second
    };
    show("writer alone", alone);
    let journal = show("journal", journal);
    let api = show("API over mTLS", api);
    let tail = show("tail -f", tail);
    report.ratio("journal against tail -f", journal / tail, None);
    report.ratio("API over mTLS against tail -f", api / tail, None);
    Ok(report)
}

fn rate(lines: u64, began: Instant) -> f64 {
    lines as f64 / began.elapsed().as_secs_f64()
}

async fn unread(lines: u64) -> Result<f64> {
    let root = TempDir::with_prefix("mainstay-bench-")?;
    let writer = log_lines::open(root.path())?;
    let began = Instant::now();
    spawn_blocking(move || log_lines::write(writer, lines)).await??;
    Ok(rate(lines, began))
}

async fn by_journal(lines: u64) -> Result<f64> {
    let root = TempDir::with_prefix("mainstay-bench-")?;
    let writer = log_lines::open(root.path())?;
    let query = LogQuery {
        follow: true,
        ..LogQuery::default()
    };
    let mut stream = LogStore::open(root.path())?.read(LOG, query).await?;
    let began = Instant::now();
    let writing = spawn_blocking(move || log_lines::write(writer, lines));
    let (mut seen, mut text) = (0, Vec::new());
    while seen < lines * LINE_BYTES {
        let chunk = stream.next().await?.context("the log ended")?;
        text.clear();
        chunk.append_text(&mut text);
        seen += text.len() as u64;
    }
    let rate = rate(lines, began);
    writing.await??;
    Ok(rate)
}

async fn by_api(setup: &Setup, lines: u64) -> Result<f64> {
    let pair = Pair::start(setup)?;
    let writer = log_lines::open(&pair.node.state().join("logs"))?;
    let mut client = connect(&pair.tls, pair.node.listen()).await?;
    let request = LogsRequest {
        namespace: "system".to_owned(),
        id: LOG.to_owned(),
        follow: true,
        tail_lines: -1,
        ..LogsRequest::default()
    };
    let mut stream = client.logs(request).await?.into_inner();
    let began = Instant::now();
    let writing = spawn_blocking(move || log_lines::write(writer, lines));
    let mut seen = 0;
    while seen < lines * LINE_BYTES {
        let data = stream.message().await?.context("the log ended")?;
        seen += data.bytes.len() as u64;
    }
    let rate = rate(lines, began);
    writing.await??;
    Ok(rate)
}

async fn by_tail(lines: u64) -> Result<f64> {
    let root = TempDir::with_prefix("mainstay-bench-")?;
    let writer = log_lines::open(root.path())?;
    let mut tail = Tail::follow(&log_lines::file(root.path()))?;
    let mut output = tail.0.stdout.take().context("tail has no output")?;
    let began = Instant::now();
    let writing = spawn_blocking(move || log_lines::write(writer, lines));
    let reading = spawn_blocking(move || {
        let (mut seen, mut buffer) = (0, vec![0; READ_BYTES]);
        while seen < lines * RECORD_BYTES {
            match output.read(&mut buffer)? {
                0 => anyhow::bail!("tail has ended"),
                len => seen += len as u64,
            }
        }
        Ok(())
    });
    reading.await??;
    let rate = rate(lines, began);
    writing.await??;
    Ok(rate)
}

/// A `tail -f` that ends with its reader.
struct Tail(Child);

impl Tail {
    fn follow(file: &Path) -> Result<Self> {
        let mut command = Command::new("tail");
        command.args(["-n", "+1", "-f"]).arg(file);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let child = command.spawn().context("tail cannot be run")?;
        Ok(Self(child))
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
