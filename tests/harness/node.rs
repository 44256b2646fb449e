use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;

use mainstay_identity::{Authority, ClientConfig, ClientSpec, PkiDir, Role};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tonic::transport::Channel;

use super::mounts::{MountsOf, PrivateMounts};
use super::network::NetworkOf;
use super::{Cli, Credentials, PATIENCE, connect_tls, connect_unix};

/// Where everything is built, this test binary included.
pub fn target_dir() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    own.ancestors().nth(3).unwrap().to_owned()
}

/// The binary under test, built beside this test binary.
pub fn binary() -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let path = own.ancestors().nth(2).unwrap().join("mainstay");
    assert!(
        path.exists(),
        "{} is missing; run cargo build -p mainstay first",
        path.display()
    );
    path
}

pub struct TestNode {
    child: Child,
    listen: SocketAddr,
    pods_listen: Option<SocketAddr>,
    mounts: Option<MountsOf>,
    // Declared last: the directory goes when the daemon is gone.
    dir: TempDir,
}

pub struct TestNodeBuilder {
    dir: TempDir,
    config: Option<String>,
    args: Vec<String>,
    environment: Vec<(String, String)>,
    mounts: Option<MountsOf>,
    network: Option<NetworkOf>,
    program: PathBuf,
}

impl TestNode {
    /// A node with the default configuration on a free port.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> TestNodeBuilder {
        TestNodeBuilder {
            dir: tempfile::Builder::new()
                .prefix("mainstay-test-")
                .tempdir()
                .unwrap(),
            config: None,
            args: Vec::new(),
            environment: Vec::new(),
            mounts: None,
            network: None,
            program: binary(),
        }
    }

    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    pub fn pods_listen(&self) -> SocketAddr {
        self.pods_listen
            .expect("the node was started with a pods listener")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The state directory, by a path that works from outside the node's own mounts too.
    pub fn state(&self) -> PathBuf {
        let state = self.dir.path().join("state");
        self.mounts
            .map_or(state.clone(), |mounts| mounts.seen(&state))
    }

    pub fn socket(&self) -> PathBuf {
        self.state().join("run/mainstay.sock")
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    pub fn stderr(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("stderr")).unwrap_or_default()
    }

    /// A directory for whatever the test needs beside the node's own.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    pub fn authority(&self) -> Authority {
        PkiDir::new(self.state().join("pki")).authority().unwrap()
    }

    pub fn ca(&self) -> String {
        std::fs::read_to_string(self.state().join("pki/ca.crt")).unwrap()
    }

    /// What the node's own client.yaml holds.
    pub fn admin(&self) -> Credentials {
        let config = ClientConfig::load(&self.state().join("client.yaml")).unwrap();
        let (_, context) = config.get(None).unwrap();
        Credentials {
            ca: context.ca.clone().unwrap(),
            identity: Some((context.crt.clone().unwrap(), context.key.clone().unwrap())),
        }
    }

    /// A client certificate with exactly these roles.
    pub fn credentials(&self, name: &str, roles: &[Role]) -> Credentials {
        let spec = ClientSpec {
            name: name.to_owned(),
            roles: roles.to_vec(),
            ttl: std::time::Duration::from_secs(3600),
        };
        Credentials::issued(&self.authority().issue_client(&spec).unwrap())
    }

    pub async fn connect(&self) -> Channel {
        connect_tls(self.listen, &self.admin()).await.unwrap()
    }

    pub async fn connect_as(&self, credentials: &Credentials) -> Channel {
        connect_tls(self.listen, credentials).await.unwrap()
    }

    pub async fn connect_locally(&self) -> Channel {
        connect_unix(&self.socket()).await.unwrap()
    }

    /// The command line, set up for this node as root finds it.
    pub fn cli(&self) -> Cli {
        Cli::new(self.dir.path()).env("MAINSTAY_STATE", self.state())
    }

    /// Waits until the node's own log holds `text`: lines of calls are written a moment later.
    pub fn wait_for_log(&self, text: &str) {
        // By the socket: a node whose CA is kept elsewhere has no client configuration.
        let socket = format!("unix:{}", self.socket().display());
        let mut follower = self.cli().spawn(["logs", "mainstay", "-f", "-e", &socket]);
        let stdout = BufReader::new(follower.stdout.take().unwrap());
        let (send, found) = mpsc::channel();
        let text = text.to_owned();
        std::thread::spawn(move || {
            if stdout
                .lines()
                .map_while(Result::ok)
                .any(|line| line.contains(&text))
            {
                let _ = send.send(());
            }
        });
        let found = found.recv_timeout(PATIENCE);
        let _ = follower.kill();
        let _ = follower.wait();
        found.expect("the log does not hold it");
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(pid_of(&self.child), signal).unwrap();
    }

    /// SIGTERM, and the way it ended.
    pub fn stop(&mut self) -> ExitStatus {
        self.signal(Signal::TERM);
        self.wait()
    }

    pub fn wait(&mut self) -> ExitStatus {
        wait_with_patience(&mut self.child)
    }

    /// As a crash does: no chance to say goodbye.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        self.wait();
    }

    /// Stops it if it runs, and starts it again on the same state and configuration.
    pub fn restart(self) -> Self {
        self.into_builder().start()
    }

    /// Stops it if it runs, for starting it, or not, on the same state and configuration.
    pub fn into_builder(mut self) -> TestNodeBuilder {
        if self.child.try_wait().unwrap().is_none() {
            assert!(self.stop().success());
        }
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        let config = std::fs::read_to_string(dir.path().join("config.toml")).ok();
        TestNodeBuilder {
            dir,
            config,
            args: Vec::new(),
            environment: Vec::new(),
            mounts: self.mounts,
            network: None,
            program: binary(),
        }
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("--- the node said:\n{}", self.stderr());
        }
    }
}

impl TestNodeBuilder {
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

    /// Runs the node where these mounts are seen.
    pub fn inside(mut self, mounts: &PrivateMounts) -> Self {
        self.mounts = Some(mounts.of());
        self
    }

    /// Runs the node on this network.
    pub fn on(mut self, network: NetworkOf) -> Self {
        self.network = Some(network);
        self
    }

    /// Runs this instead of the binary that was built.
    pub fn program(mut self, program: &Path) -> Self {
        program.clone_into(&mut self.program);
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

    pub fn command(&self) -> Command {
        let mut command = match (self.mounts, self.network) {
            (Some(mounts), _) => mounts.command(&self.program),
            (None, Some(network)) => network.command(&self.program),
            (None, None) => Command::new(&self.program),
        };
        command.arg("serve").arg("--state").arg(self.state());
        let config = self.dir.path().join("config.toml");
        if let Some(text) = &self.config {
            std::fs::write(&config, text).unwrap();
            command.arg("--config").arg(&config);
        }
        let listens = self
            .config
            .as_deref()
            .unwrap_or_default()
            .contains("\nlisten")
            || self.args.iter().any(|arg| arg == "--listen");
        if !listens {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        command.args(&self.args);
        command
            .env_remove("MAINSTAY_STATE")
            .env_remove("NOTIFY_SOCKET");
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn start(self) -> TestNode {
        let stderr = std::fs::File::create(self.dir.path().join("stderr")).unwrap();
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(stderr);
        let mut child = command.spawn().unwrap();
        let stdout = child.stdout.take().unwrap();
        let (send, lines) = mpsc::channel();
        // Reads on to the end so that the node never writes into a full or closed pipe.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
        });
        let mut node = TestNode {
            child,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            pods_listen: None,
            mounts: self.mounts,
            dir: self.dir,
        };
        loop {
            let Ok(line) = lines.recv_timeout(PATIENCE) else {
                let ended = node.child.try_wait();
                panic!(
                    "the node did not come up ({ended:?}); it said:\n{}",
                    node.stderr()
                );
            };
            if let Some(address) = between(&line, " serves on ", " (TLS)") {
                node.listen = address.parse().unwrap();
            }
            if let Some(address) = between(&line, "original pod clients read on ", ",") {
                node.pods_listen = Some(address.parse().unwrap());
            }
            if line.contains("ready in") {
                return node;
            }
        }
    }

    /// Starts a node that must refuse to: what it said, and its exit code.
    pub fn refused(&self) -> (String, i32) {
        // A file takes whatever is said at any length; a pipe would stop the node when full.
        let path = self.dir.path().join("refusal");
        let stderr = std::fs::File::create(&path).unwrap();
        let mut command = self.command();
        command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr);
        let status = wait_with_patience(&mut command.spawn().unwrap());
        assert!(!status.success(), "the node ran");
        let said = std::fs::read_to_string(&path).unwrap();
        (said, status.code().unwrap_or(-1))
    }
}

fn between<'a>(line: &'a str, start: &str, end: &str) -> Option<&'a str> {
    let rest = &line[line.find(start)? + start.len()..];
    Some(&rest[..rest.find(end)?])
}

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap()
}

/// Waits on the process itself, by its pidfd, and never longer than patience allows.
pub fn wait_with_patience(child: &mut Child) -> ExitStatus {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::process::{PidfdFlags, pidfd_open};
    if let Ok(pidfd) = pidfd_open(pid_of(child), PidfdFlags::empty()) {
        let mut fds = [PollFd::new(&pidfd, PollFlags::IN)];
        let bound = Timespec {
            tv_sec: PATIENCE.as_secs().try_into().unwrap(),
            tv_nsec: 0,
        };
        if poll(&mut fds, Some(&bound)).unwrap() == 0 {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the process did not end");
        }
    }
    child.wait().unwrap()
}
