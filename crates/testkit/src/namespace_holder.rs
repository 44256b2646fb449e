use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

use crate::wait_for_exit;

/// A process that keeps namespaces alive. They go when it exits, which it does when it is dropped
/// or when the test dies: its standard input ends.
pub struct NamespaceHolder {
    child: Child,
}

impl NamespaceHolder {
    /// Runs `unshare` with these options and, inside, a shell script. The namespaces are ready when
    /// the script has succeeded; `$0`, `$1` and so on are `arguments`.
    pub fn unshare(options: &[&str], script: &str, arguments: &[&str]) -> Self {
        let mut command = Command::new("unshare");
        command
            .args(options)
            .args(["sh", "-c"])
            .arg(format!("{{ {script}; }} && echo ready && exec cat"))
            .args(arguments);
        Self::spawn(command)
    }

    /// Runs a command that prints `ready` once its namespaces are, and exits at EOF.
    pub fn spawn(mut command: Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let holder = Self { child };
        assert_eq!(line, "ready\n", "cannot set up namespaces: {command:?}");
        holder
    }

    /// The PID by which other processes enter the namespaces.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// A command that runs `program` in one kind of the namespaces, as its own process.
    pub fn command_in(pid: u32, kind: &str, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--target={pid}"))
            .args([kind, "--"])
            .arg(program);
        command
    }
}

impl Drop for NamespaceHolder {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        if std::thread::panicking() {
            let _ = self.child.wait();
        } else {
            wait_for_exit(&mut self.child);
        }
    }
}
