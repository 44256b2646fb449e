//! A machine of the test's own, emulated, with its own kernel: for what this machine's kernel cannot
//! show, above all control groups of version 2 alone.

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

/// All that is done with a guest, from the first instruction to the last step, is done by then.
const WHOLE_RUN: Duration = Duration::from_secs(160);
/// A step is ended so much earlier, inside: then what it has said still comes back.
const TO_ANSWER: Duration = Duration::from_secs(10);

/// No network, no disk; the first serial port is the kernel's console, the second, for the session,
/// is QEMU's standard input and output. A kernel that panics ends it.
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
    /// Boots a machine that has these programs in its path, under these names.
    pub fn boot(programs: &[(&str, &Path)]) -> Self {
        let deadline = Instant::now() + WHOLE_RUN;
        let dir = tempfile::Builder::new()
            .prefix("mainstay-guest-")
            .tempdir()
            .unwrap();
        let memory = dir.path().join("memory");
        std::fs::write(&memory, root::packed(programs, dir.path())).unwrap();
        // It ends with the thread that boots it, also when the test is killed.
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
        // Takes whatever comes when it comes: a serial port does not wait for its reader.
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

    /// Runs a script of the shell, and waits for its end. What it leaves running runs on.
    pub fn run(&self, script: &str) -> CliOutput {
        let left = self.deadline.saturating_duration_since(Instant::now());
        let seconds = left.saturating_sub(TO_ANSWER).as_secs().max(1);
        let step = format!("{seconds} {}\n{script}", script.len());
        // When nobody is there to read it, there is no answer either.
        let _ = (&self.asked).write_all(step.as_bytes());
        self.answer(script)
    }

    /// Starts a program that runs on, and waits until it has said a line with these words.
    #[track_caller]
    pub fn start(&self, name: &str, words: &str, program: &str) -> String {
        self.run(&format!("start {name} '{words}' {program}")).ok()
    }

    /// Sends a signal to what was started under this name: the way it ended, and what it had said
    /// on its standard error.
    pub fn stop(&self, name: &str, signal: &str) -> CliOutput {
        self.run(&format!("stop {name} {signal}"))
    }

    fn answer(&self, step: &str) -> CliOutput {
        let left = self.deadline.saturating_duration_since(Instant::now());
        match self.answers.recv_timeout(left) {
            Ok(answer) => answer,
            Err(RecvTimeoutError::Timeout) => panic!("the guest did not answer in time: {step}"),
            Err(RecvTimeoutError::Disconnected) => {
                panic!("the guest has ended (scripts/setup-test installs QEMU): {step}")
            }
        }
    }

    fn said(&self, file: &str) -> String {
        let bytes = std::fs::read(self.dir.path().join(file)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        let _ = self.qemu.kill();
        let _ = self.qemu.wait();
        if std::thread::panicking() {
            eprintln!("--- the guest's console:\n{}", self.said("console"));
            eprintln!("--- QEMU said:\n{}", self.said("stderr"));
        }
    }
}

/// `<code> <bytes> <bytes>`, then standard output and standard error. Ends with QEMU.
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

/// Debian's, kept by `scripts/setup-test` beside the build.
fn kernel() -> PathBuf {
    let path = target_dir().join("tools/vmlinuz");
    assert!(
        path.exists(),
        "{} is missing; scripts/setup-test fetches it",
        path.display()
    );
    path
}
