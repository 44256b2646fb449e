use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::sync::mpsc;
use std::time::Duration;

use mainstay_identity::{Authority, ClientConfig, ClientSpec, PkiDir, Role};
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::transport::Channel;

use crate::{
    Cli, Credentials, MountNamespace, ServerProcess, TestNodeBuilder, WAIT_TIMEOUT, connect_tls,
    connect_unix,
};

/// A node with a state directory of its own, listening on loopback. Killed when dropped.
pub struct TestNode {
    pub(crate) process: ServerProcess,
    pub(crate) listen: SocketAddr,
    pub(crate) pods_listen: Option<SocketAddr>,
    pub(crate) mounts: Option<MountNamespace>,
    pub(crate) program: PathBuf,
    // Declared last: the directory goes when the daemon is gone.
    pub(crate) dir: TempDir,
}

impl TestNode {
    /// Starts a node with the default configuration on a free port.
    pub fn start() -> Self {
        Self::builder().start()
    }

    pub fn builder() -> TestNodeBuilder {
        let dir = TempDir::with_prefix("mainstay-test-").unwrap();
        TestNodeBuilder::new(dir)
    }

    /// The address of the TLS listener.
    pub fn listen(&self) -> SocketAddr {
        self.listen
    }

    pub fn pods_listen(&self) -> SocketAddr {
        self.pods_listen
            .expect("the node was started with a pods listener")
    }

    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// The process, for its PID and times.
    pub fn process(&self) -> &ServerProcess {
        &self.process
    }

    /// The state directory, by a path that works outside the node's mount namespace too.
    pub fn state(&self) -> PathBuf {
        let state = self.dir.path().join("state");
        match self.mounts {
            Some(mounts) => mounts.seen(&state),
            None => state,
        }
    }

    /// The unix socket.
    pub fn socket(&self) -> PathBuf {
        self.state().join("run/mainstay.sock")
    }

    pub fn config_file(&self) -> PathBuf {
        self.dir.path().join("config.toml")
    }

    /// Everything the daemon has written to standard error.
    pub fn stderr(&self) -> String {
        self.process.stderr()
    }

    /// A directory for files of the test, beside the state directory.
    pub fn scratch(&self) -> &Path {
        self.dir.path()
    }

    pub fn authority(&self) -> Authority {
        PkiDir::new(self.state().join("pki")).authority().unwrap()
    }

    /// The CA certificate as PEM.
    pub fn ca(&self) -> String {
        std::fs::read_to_string(self.state().join("pki/ca.crt")).unwrap()
    }

    /// The credentials in the node's own `client.yaml`.
    pub fn admin(&self) -> Credentials {
        let config = ClientConfig::load(&self.state().join("client.yaml")).unwrap();
        let (_, context) = config.get(None).unwrap();
        Credentials {
            ca: context.ca.clone().unwrap(),
            identity: Some((context.crt.clone().unwrap(), context.key.clone().unwrap())),
        }
    }

    /// Issues a client certificate with exactly these roles.
    pub fn credentials(&self, name: &str, roles: &[Role]) -> Credentials {
        let spec = ClientSpec {
            name: name.to_owned(),
            roles: roles.to_vec(),
            ttl: Duration::from_secs(3600),
        };
        Credentials::issued(&self.authority().issue_client(&spec).unwrap())
    }

    pub async fn connect(&self) -> Channel {
        self.connect_as(&self.admin()).await
    }

    pub async fn connect_as(&self, credentials: &Credentials) -> Channel {
        connect_tls(self.listen, credentials).await.unwrap()
    }

    /// Connects to the unix socket.
    pub async fn connect_locally(&self) -> Channel {
        connect_unix(&self.socket()).await.unwrap()
    }

    /// The command line of the node's binary, configured for this node as for root on its machine.
    pub fn cli(&self) -> Cli {
        Cli::of(&self.program, self.dir.path()).env("MAINSTAY_STATE", self.state())
    }

    /// Waits until the node's own log contains `text`. Request log lines are written up to 10 ms
    /// after the reply.
    #[track_caller]
    pub fn wait_for_log(&self, text: &str) {
        self.wait_for_log_lines(text, 1);
    }

    /// Waits until so many lines of the node's own log contain `text`.
    #[track_caller]
    fn wait_for_log_lines(&self, text: &str, count: usize) {
        // By the socket: a node whose CA is kept elsewhere has no client configuration.
        let socket = format!("unix:{}", self.socket().display());
        let mut follower = self.cli().spawn(["logs", "mainstay", "-f", "-e", &socket]);
        let stdout = BufReader::new(follower.stdout.take().unwrap());
        let (send, found) = mpsc::channel();
        let wanted = text.to_owned();
        std::thread::spawn(move || {
            let lines = stdout.lines().map_while(Result::ok);
            if lines
                .filter(|line| line.contains(&wanted))
                .nth(count - 1)
                .is_some()
            {
                let _ = send.send(());
            }
        });
        let found = found.recv_timeout(WAIT_TIMEOUT);
        let _ = follower.kill();
        let _ = follower.wait();
        assert!(found.is_ok(), "the node's log does not contain {text:?}");
    }

    /// Replaces the configuration file and has the node read it. The node must have been started
    /// with a configuration.
    #[track_caller]
    pub fn reload(&self, config: &str) {
        const RELOADED: &str = "configuration reloaded";
        let socket = format!("unix:{}", self.socket().display());
        let log = self.cli().run(["logs", "mainstay", "-e", &socket]).ok();
        let before = log.lines().filter(|line| line.contains(RELOADED)).count();
        std::fs::write(self.config_file(), config).unwrap();
        self.signal(Signal::HUP);
        self.wait_for_log_lines(RELOADED, before + 1);
    }

    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Sends SIGTERM and waits.
    pub fn stop(&mut self) -> ExitStatus {
        self.process.stop()
    }

    pub fn wait(&mut self) -> ExitStatus {
        self.process.wait()
    }

    /// Sends SIGKILL and waits: a crash.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Stops the daemon if it runs, and starts it on the same state and configuration.
    pub fn restart(self) -> Self {
        self.into_builder().start()
    }

    /// Stops the daemon if it runs, to start it on the same state and configuration.
    pub fn into_builder(mut self) -> TestNodeBuilder {
        if self.process.is_running() {
            assert!(self.stop().success());
        }
        // Dropping a node needs its directory only for what it said.
        let dir = std::mem::replace(&mut self.dir, TempDir::new().unwrap());
        let config = std::fs::read_to_string(dir.path().join("config.toml")).ok();
        let mut builder = TestNodeBuilder::new(dir).program(&self.program);
        builder.config = config;
        builder.mounts = self.mounts;
        builder
    }
}

impl Drop for TestNode {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- stderr of the node:\n{}", self.stderr());
        }
    }
}
