//! How fast a program in a cell can print lines, each of which gets its time and goes to a log on
//! disk, against `cat` that copies the same from a pipe to a file. Then every byte is read back.

use std::fs::File;
use std::io::{BufWriter, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use mainstay_api::runtime::ExecutableState;
use mainstay_testkit::procfs::cpu_seconds;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tokio::task::spawn_blocking;

use super::{Setup, megabytes};
use crate::cells::{CellClient, CellNode};
use crate::report::{Report, Target};
use crate::stats::median;

/// With its newline.
const LINE_BYTES: u64 = 100;
const CELL: &str = "output";

pub async fn run(setup: &Setup) -> Result<Report> {
    let (rounds, mebibytes) = setup.pick((5, 1024_u64), (1, 64));
    let lines = (mebibytes << 20) / LINE_BYTES;
    let node = CellNode::start(setup)?;
    let mut client = node.endpoint().connect().await?;
    let file = node.scratch().join("lines");
    let other = node.scratch().join("other");
    write_lines(&file, lines)?;

    let (mut cell, mut cat, mut shim_cpu) = (vec![], vec![], vec![]);
    let rate = |took: Duration| megabytes(lines * LINE_BYTES) / took.as_secs_f64();
    for _ in 0..rounds {
        let (took, cpu) = print_in_cell(&mut client, &file).await?;
        cell.push(rate(took));
        shim_cpu.push(cpu);
        let (from, to) = (file.clone(), other.clone());
        cat.push(rate(spawn_blocking(move || copy(&from, &to)).await??));
    }

    let mut report = Report::new(
        "cell-output",
        format!(
            "{lines} lines of {LINE_BYTES} bytes from cat, median of {rounds} rounds, in turns; \
             all of them were in the log, in order"
        ),
    );
    let (cell, cat) = (median(cell), median(cat));
    report.figure("to the log of a cell", "MB/s", cell);
    report.figure("to the log of a cell", "shim CPU s", median(shim_cpu));
    report.figure("cat FILE | cat > other", "MB/s", cat);
    report.ratio(
        "log of a cell against cat",
        cell / cat,
        Some(Target::AtLeast(0.5)),
    );
    Ok(report)
}

/// Each has its number, so that none can stand for another.
fn write_lines(path: &Path, lines: u64) -> Result<()> {
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let rest = "x".repeat(usize::try_from(LINE_BYTES)? - 13);
    for number in 0..lines {
        writeln!(file, "{number:011} {rest}")?;
    }
    Ok(file.flush()?)
}

/// How long it took, and how much of the processor the shim took for it.
async fn print_in_cell(client: &mut CellClient, file: &Path) -> Result<(Duration, f64)> {
    client.allocate(CELL).await?;
    let began = Instant::now();
    let pid = client.start(CELL, &format!("cat {}", file.display())).await;
    until_ended(pid?).await?;
    client.stop(CELL).await?;
    let took = began.elapsed();

    let cells = client.list().await?;
    let cell = cells.first().context("the cell is not listed")?;
    let cpu = cpu_seconds(u32::try_from(cell.shim_pid)?)?;
    let executable = cell.executables.first().context("nothing was started")?;
    ensure!(
        executable.state() == ExecutableState::Exited && executable.exit_code == 0,
        "cat ended as {executable:?}"
    );
    verify(client, file.to_owned()).await?;
    client.free(CELL).await?;
    Ok((took, cpu))
}

/// The end of a process itself: reading its output meanwhile would cost the node time.
async fn until_ended(pid: i32) -> Result<()> {
    let pid = Pid::from_raw(pid).context("a process has no number")?;
    spawn_blocking(move || {
        // One that has ended already has nothing to wait for.
        if let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) {
            poll(&mut [PollFd::new(&process, PollFlags::IN)], None)?;
        }
        Ok(())
    })
    .await?
}

/// The log as a client reads it, compared with what was printed.
async fn verify(client: &mut CellClient, file: PathBuf) -> Result<()> {
    let mut printed = File::open(file)?;
    let mut logged = client.output(CELL).await?;
    let (mut offset, mut expected) = (0, Vec::new());
    while let Some(data) = logged.message().await? {
        expected.resize(data.bytes.len(), 0);
        printed
            .read_exact(&mut expected)
            .with_context(|| format!("the log goes on beyond byte {offset}"))?;
        ensure!(
            data.bytes == expected,
            "the log is not what was printed, from byte {offset} on"
        );
        offset += data.bytes.len() as u64;
    }
    let len = printed.metadata()?.len();
    ensure!(offset == len, "only {offset} of {len} bytes are in the log");
    Ok(())
}

/// Runs `cat from | cat > to` as a shell does.
fn copy(from: &Path, to: &Path) -> Result<Duration> {
    let to_file = File::create(to)?;
    let began = Instant::now();
    let mut reader = Command::new("cat");
    let mut reader = reader.arg(from).stdout(Stdio::piped()).spawn()?;
    let pipe = reader.stdout.take().context("cat has no output")?;
    let copied = Command::new("cat").stdin(pipe).stdout(to_file).status();
    let read = reader.wait()?;
    let took = began.elapsed();
    ensure!(read.success() && copied?.success(), "cat failed");
    let (written, len) = (to.metadata()?.len(), from.metadata()?.len());
    ensure!(written == len, "cat wrote {written} of {len} bytes");
    std::fs::remove_file(to)?;
    Ok(took)
}
