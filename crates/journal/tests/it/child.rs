//! Jobs in a child process that can be killed or have private mounts.
//!
//! The test binary starts itself again with one ignored test as the entry.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

use crate::{event_crash, full_disk, log_crash, log_follow};

const JOB: &str = "JOURNAL_TEST_JOB";
const DIRECTORY: &str = "JOURNAL_TEST_DIRECTORY";
const ACKNOWLEDGED: &str = "acknowledged ";

#[test]
#[ignore = "started by other tests in a process of its own"]
fn entry() {
    let job = std::env::var(JOB).expect("started by another test");
    let directory = PathBuf::from(std::env::var_os(DIRECTORY).unwrap());
    match job.as_str() {
        "publish" => event_crash::publish_forever(&directory),
        "append" => log_crash::append_forever(&directory),
        "events-full-disk" => full_disk::events(&directory),
        "events-read-only" => full_disk::events_read_only(&directory),
        "logs-full-disk" => full_disk::logs(&directory),
        "many-followers" => log_follow::many_followers(&directory),
        other => panic!("no such job: {other}"),
    }
}

fn prepare(command: &mut Command, job: &str, directory: &Path) {
    command
        .args(["child::entry", "--exact", "--ignored", "--nocapture"])
        .env(JOB, job)
        .env(DIRECTORY, directory)
        .stdin(Stdio::null());
}

/// Runs a job to its end; its assertions are those of the calling test.
pub(crate) fn run(job: &str, directory: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    prepare(&mut command, job, directory);
    succeed(command);
}

/// Runs a job with a file system of 256 KiB mounted at the directory, for that process alone.
pub(crate) fn run_on_tiny_disk(job: &str, directory: &Path) {
    let mut command = Command::new("unshare");
    if !rustix::process::geteuid().is_root() {
        command.arg("--map-root-user");
    }
    command
        .args(["--mount", "--propagation", "private", "sh", "-c"])
        .arg(r#"mount -t tmpfs -o size=256k tmpfs "$0" && exec "$@""#)
        .arg(directory)
        .arg(std::env::current_exe().unwrap());
    prepare(&mut command, job, directory);
    succeed(command);
}

fn succeed(mut command: Command) {
    let output = command.output().unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}\n{err}");
    assert!(out.contains("1 passed"), "the job did not run: {out}");
}

/// A job that reports its progress and is killed before its end.
pub(crate) struct Victim {
    child: Child,
    output: BufReader<ChildStdout>,
}

impl Victim {
    pub(crate) fn start(job: &str, directory: &Path) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        prepare(&mut command, job, directory);
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Self { child, output }
    }

    /// Returns the next acknowledged number.
    pub(crate) fn acknowledged(&mut self) -> Option<u64> {
        let mut line = String::new();
        while self.output.read_line(&mut line).unwrap() > 0 {
            // The test harness prints lines of its own. The last line may be cut short.
            let number = line
                .find(ACKNOWLEDGED)
                .map(|at| &line[at + ACKNOWLEDGED.len()..]);
            if let Some(number) = number.and_then(|number| number.strip_suffix('\n')) {
                return Some(number.parse().unwrap());
            }
            line.clear();
        }
        None
    }

    /// Kills it with SIGKILL; returns everything it acknowledged before.
    pub(crate) fn kill(mut self) -> Vec<u64> {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        std::iter::from_fn(|| self.acknowledged()).collect()
    }
}

/// Reports progress to the parent.
pub(crate) fn acknowledge(number: u64) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{ACKNOWLEDGED}{number}\n").as_bytes())
        .unwrap();
    out.flush().unwrap();
}
