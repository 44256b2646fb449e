//! Peers: other programs that do the same work, and their times.

use std::io::Read as _;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

/// As much as a pipe holds by default.
const READ_BYTES: usize = 64 << 10;

/// Size and timing of the output of a program.
#[derive(Clone, Copy, Debug)]
pub struct Printed {
    pub bytes: u64,
    pub lines: u64,
    /// From spawn to exit.
    pub took: Duration,
    /// From the first byte to exit.
    pub after_first: Duration,
}

/// Runs a command until it exits, on a thread of its own.
pub async fn printed(command: Command) -> Result<Printed> {
    tokio::task::spawn_blocking(move || run(command)).await?
}

/// Runs a command that prints nothing on this thread, and returns the time from spawn to exit.
pub fn ended(mut command: Command) -> Result<Duration> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let began = Instant::now();
    let status = command
        .status()
        .with_context(|| format!("cannot run {name}"))?;
    let took = began.elapsed();
    ensure!(status.success(), "{name}: {status}");
    Ok(took)
}

fn run(mut command: Command) -> Result<Printed> {
    let name = command.get_program().to_string_lossy().into_owned();
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let began = Instant::now();
    let mut child = command
        .spawn()
        .with_context(|| format!("cannot run {name}"))?;
    let Some(mut output) = child.stdout.take() else {
        bail!("{name} has no output");
    };
    let (mut bytes, mut lines, mut first) = (0, 0, None);
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let len = output.read(&mut buffer)?;
        if len == 0 {
            break;
        }
        first.get_or_insert_with(Instant::now);
        bytes += len as u64;
        lines += buffer[..len].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
    let status = child.wait()?;
    let took = began.elapsed();
    ensure!(status.success(), "{name}: {status}");
    Ok(Printed {
        bytes,
        lines,
        took,
        after_first: first.map_or(took, |first| first.elapsed()),
    })
}
