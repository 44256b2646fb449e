//! An emulated machine with a kernel of its own, for what this machine's kernel does not have: above
//! all a cgroup v2 hierarchy alone.

mod archive;
mod programs;
mod root;

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use tempfile::TempDir;

pub use self::programs::tests_of;
use crate::{CliOutput, target_dir};

/// The bound of everything done with a guest, boot included.
const RUN_TIMEOUT: Duration = Duration::from_secs(160);
/// A step is killed in the guest this much earlier, so that its output still comes back.
const ANSWER_RESERVE: Duration = Duration::from_secs(10);

/// No network, no disk. The first serial port is the kernel's console; the second, for the session,
/// is QEMU's standard input and output. QEMU exits when the kernel panics.
const MACHINE: &[&str] = &[
    "-accel",
    "tcg,thread=multi",
    "-cpu",
    "max",
    "-smp",
    "2",
    "-m",
    "1G",
    "-nodefaults",
    "-no-user-config",
    "-no-reboot",
    "-display",
    "none",
    "-nic",
    "none",
    "-chardev",
    "stdio,id=session,signal=off",
];
const KERNEL: &str = "console=ttyS0 quiet panic=-1 random.trust_cpu=on mitigations=off";

pub struct Guest {
    qemu: Child,
    asked: ChildStdin,
    answers: Receiver<CliOutput>,
    deadline: Instant,
    // Declared last: the directory goes when QEMU is gone.
    dir: TempDir,
}

impl Guest {
    /// Boots a machine with these programs in its PATH, under these names.
    pub fn boot(programs: &[(&str, &Path)]) -> Self {
        let deadline = Instant::now() + RUN_TIMEOUT;
        let dir = tempfile::Builder::new()
            .prefix("mainstay-guest-")
            .tempdir()
            .unwrap();
        let memory = dir.path().join("memory");
        std::fs::write(&memory, root::packed(programs, dir.path())).unwrap();
        // Killed with the thread that boots it, also when the test is killed.
        let mut qemu = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "qemu-system-x86_64"])
            .args(MACHINE)
            .arg("-serial")
            .arg(format!("file:{}", dir.path().join("console").display()))
            .args(["-serial", "chardev:session"])
            .arg("-kernel")
            .arg(kernel())
            .arg("-initrd")
            .arg(&memory)
            .args(["-append", KERNEL])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(File::create(dir.path().join("stderr")).unwrap())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(qemu.stdout.take().unwrap());
        let (send, answers) = mpsc::channel();
        // Reads all the time: a serial port does not wait for its reader.
        std::thread::spawn(move || read_answers(stdout, &send));
        let guest = Self {
            asked: qemu.stdin.take().unwrap(),
            qemu,
            answers,
            deadline,
            dir,
        };
        guest.answer("boot").ok();
        // QEMU has read it.
        std::fs::remove_file(&memory).unwrap();
        guest
    }

    /// Runs a shell script and waits until it exits. Its background processes run on.
    pub fn run(&self, script: &str) -> CliOutput {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let seconds = left.saturating_sub(ANSWER_RESERVE).as_secs().max(1);
        let step = format!("{seconds} {}\n{script}", script.len());
        // A guest that does not read gives no answer either.
        let _ = (&self.asked).write_all(step.as_bytes());
        self.answer(script)
    }

    /// Starts a program in the background and waits until it prints a line that contains `words`.
    #[track_caller]
    pub fn start(&self, name: &str, words: &str, program: &str) -> String {
        self.run(&format!("start {name} '{words}' {program}")).ok()
    }

    /// Sends a signal to the program started under this name, and returns its exit code and standard
    /// error.
    pub fn stop(&self, name: &str, signal: &str) -> CliOutput {
        self.run(&format!("stop {name} {signal}"))
    }

    fn answer(&self, step: &str) -> CliOutput {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => {
                panic!("the guest did not answer within {RUN_TIMEOUT:?}: {step}")
            }
            Err(RecvTimeoutError::Disconnected) => {
                panic!("QEMU exited (scripts/setup-test installs it): {step}")
            }
        }
    }

    fn output_file(&self, file: &str) -> String {
        let bytes = std::fs::read(self.dir.path().join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            eprintln!("--- console of the guest:\n{}", self.output_file("console"));
            eprintln!("--- stderr of QEMU:\n{}", self.output_file("stderr"));
        }
    }
}

/// Parses `<code> <bytes> <bytes>`, then standard output and standard error, until QEMU exits.
fn read_answers(mut from: impl BufRead, to: &Sender<CliOutput>) -> Option<()> {
    loop {
        let mut header = String::new();
        from.read_line(&mut header).ok()?;
        let mut numbers = header.split_whitespace().map(str::parse);
        let mut number = || numbers.next()?.ok();
        let (code, stdout, stderr): (usize, _, _) = (number()?, number()?, number()?);
        let mut text = |length: usize| {
            let mut bytes = vec![0; length];
            from.read_exact(&mut bytes).ok()?;
            Some(String::from_utf8_lossy(&bytes).into_owned())
        };
        let answer = CliOutput {
            stdout: text(stdout)?,
            stderr: text(stderr)?,
            code: code.try_into().ok()?,
        };
        to.send(answer).ok()?;
    }
}

/// Debian's kernel, from `scripts/setup-test`.
fn kernel() -> PathBuf {
    let path = target_dir().join("tools/vmlinuz");
    assert!(
        path.exists(),
        "{} does not exist; scripts/setup-test downloads it",
        path.display()
    );
    path
}
