use std::ffi::OsStr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use crate::binary;

/// The command line in an environment with nothing but `HOME`, `PATH` and `TZ`.
pub struct Cli {
    command: Command,
}

/// The output and exit code of a command; -1 if a signal killed it.
pub struct CliOutput {
    pub stdout: String,
    pub stderr: String,
    pub code: i32,
}

impl Cli {
    /// The binary that was built with this test.
    pub fn new(home: &Path) -> Self {
        Self::of(&binary(), home)
    }

    pub fn of(program: &Path, home: &Path) -> Self {
        let mut command = Command::new(program);
        command
            .env_clear()
            .env("HOME", home)
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("TZ", "UTC")
            .current_dir(home)
            .stdin(Stdio::null());
        Self { command }
    }

    pub fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn stdin(mut self, stdin: impl Into<Stdio>) -> Self {
        self.command.stdin(stdin);
        self
    }

    pub fn run<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> CliOutput {
        self.command.args(args).output().unwrap().into()
    }

    pub fn spawn<S: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = S>) -> Child {
        let command = self
            .command
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

impl From<Output> for CliOutput {
    fn from(output: Output) -> Self {
        Self {
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
            code: output.status.code().unwrap_or(-1),
        }
    }
}

impl CliOutput {
    /// Standard output of a command that must have succeeded.
    #[track_caller]
    pub fn ok(self) -> String {
        assert_eq!(
            self.code, 0,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self.stdout
    }

    /// Standard error of a command that must have exited with `code`.
    #[track_caller]
    pub fn failed(self, code: i32) -> String {
        assert_eq!(
            self.code, code,
            "stdout: {}\nstderr: {}",
            self.stdout, self.stderr
        );
        self.stderr
    }

    /// Standard output of a command that must have succeeded, as one JSON document.
    #[track_caller]
    pub fn json(self) -> serde_json::Value {
        let text = self.ok();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
    }
}
