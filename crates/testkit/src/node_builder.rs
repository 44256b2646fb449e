use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::{MountNamespace, NetworkNamespace, ServerProcess, TestNode, binary, wait_for_exit};

/// The way a [`TestNode`] is started.
pub struct TestNodeBuilder {
    dir: TempDir,
    pub(crate) config: Option<String>,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    pub(crate) mounts: Option<MountNamespace>,
    network: Option<NetworkNamespace>,
    program: Option<PathBuf>,
}

impl TestNodeBuilder {
    pub(crate) fn new(dir: TempDir) -> Self {
        Self {
            dir,
            config: None,
            args: Vec::new(),
            environment: Vec::new(),
            mounts: None,
            network: None,
            program: None,
        }
    }

    pub fn config(mut self, toml: &str) -> Self {
        self.config = Some(toml.to_owned());
        self
    }

    pub fn arg(mut self, arg: impl Into<String>) -> Self {
        self.args.push(arg.into());
        self
    }

    pub fn env(mut self, name: &str, value: impl Into<String>) -> Self {
        self.environment.push((name.to_owned(), value.into()));
        self
    }

    /// Runs the node in this mount namespace.
    pub fn inside(mut self, mounts: MountNamespace) -> Self {
        self.mounts = Some(mounts);
        self
    }

    /// Runs the node in this network namespace.
    pub fn on(mut self, network: NetworkNamespace) -> Self {
        self.network = Some(network);
        self
    }

    /// Runs this program instead of the binary that was built with the test.
    pub fn program(mut self, program: &Path) -> Self {
        self.program = Some(program.to_owned());
        self
    }

    pub fn state(&self) -> PathBuf {
        self.dir.path().join("state")
    }

    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// The command that starts the node; writes the configuration file.
    pub fn command(&self) -> Command {
        let program = self.program.clone().unwrap_or_else(binary);
        let mut command = match (self.mounts, self.network) {
            (Some(mounts), None) => mounts.command(&program),
            (None, Some(network)) => network.command(&program),
            (None, None) => Command::new(&program),
            (Some(_), Some(_)) => panic!("a node runs in one foreign namespace at most"),
        };
        command.arg("serve").arg("--state").arg(self.state());
        if let Some(text) = &self.config {
            let config = self.config_file();
            std::fs::write(&config, text).unwrap();
            command.arg("--config").arg(&config);
        }
        let config = self.config.as_deref().unwrap_or_default();
        if !config.contains("\nlisten") && !self.args.iter().any(|arg| arg == "--listen") {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(&self.args);
        command
            .env_remove("MAINSTAY_STATE")
            .env_remove("NOTIFY_SOCKET");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    /// Starts the node and waits until it is ready.
    pub fn start(self) -> TestNode {
        let mut listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut pods_listen = None;
        let stderr = self.dir.path().join("stderr");
        let process = ServerProcess::start(self.command(), &stderr, |line| {
            if let Some(address) = between(line, " serves on ", " (TLS)") {
                listen = address.parse().unwrap();
            }
            if let Some(address) = between(line, "original pod clients read on ", ",") {
                pods_listen = Some(address.parse().unwrap());
            }
            line.contains("ready in")
        });
        TestNode {
            process,
            listen,
            pods_listen,
            mounts: self.mounts,
            program: self.program.unwrap_or_else(binary),
            dir: self.dir,
        }
    }

    /// Starts a node that must refuse to start. Returns its standard error and its exit code.
    pub fn refused(&self) -> (String, i32) {
        // A file takes output of any length; a pipe would block the node when full.
        let path = self.dir.path().join("refusal");
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&path).unwrap());
        let status = wait_for_exit(&mut command.spawn().unwrap());
        assert!(!status.success(), "the node started and exited with 0");
        let stderr = std::fs::read_to_string(&path).unwrap();
        (stderr, status.code().unwrap_or(-1))
    }
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &line[line.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}
