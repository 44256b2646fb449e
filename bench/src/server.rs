//! A server under measurement, in a process of its own: the node or the floor.
//!
//! Both tell when they serve the way a service manager is told, so that no wait here is a poll,
//! and both are gone when their [`Server`] is.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::net::UnixDatagram;
use tokio::time::timeout;

/// No start or stop takes this long; reaching it is a failure.
const PATIENCE: Duration = Duration::from_secs(20);
const ANY_PORT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// What both kinds of server print before the address they serve on.
const GREETING: &str = " serves on ";

#[derive(Debug)]
pub struct Server {
    running: Running,
    began: Instant,
    ready_after: Duration,
    address: SocketAddr,
    /// Held open, so that the server never writes into a closed pipe.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    /// The real node on `state`, and on a port of its own.
    pub async fn node(binary: &Path, state: &Path) -> Result<Self> {
        Self::node_at(binary, state, ANY_PORT).await
    }

    /// The real node where clients already know it to be.
    pub async fn node_at(binary: &Path, state: &Path, listen: SocketAddr) -> Result<Self> {
        let mut command = Command::new(binary);
        command
            .args(["serve", "--listen", &listen.to_string(), "--state"])
            .arg(state)
            .env_remove("MAINSTAY_STATE");
        Self::start(command).await
    }

    /// The real node as a configuration file says, on `state` and on a port of its own.
    pub async fn node_as(binary: &Path, state: &Path, config: &Path) -> Result<Self> {
        let mut command = Command::new(binary);
        command
            .args(["serve", "--listen", &ANY_PORT.to_string(), "--state"])
            .arg(state)
            .arg("--config")
            .arg(config)
            .env_remove("MAINSTAY_STATE");
        Self::start(command).await
    }

    /// A server that does nothing but answer, with the certificates of the node on `state`.
    pub async fn floor(state: &Path) -> Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("floor").arg(state.join("pki"));
        Self::start(command).await
    }

    async fn start(mut command: Command) -> Result<Self> {
        command.stdout(Stdio::piped());
        let began = Instant::now();
        let mut running = Running::start(command).await?;
        let ready_after = began.elapsed();
        let Some(stdout) = running.0.stdout.take() else {
            bail!("a started process has no standard output");
        };
        let mut server = Self {
            running,
            began,
            ready_after,
            address: ANY_PORT,
            stdout: BufReader::new(stdout),
        };
        server.address = server.greeted()?;
        Ok(server)
    }

    /// The greeting is printed before the server says that it is ready, so this does not wait.
    fn greeted(&mut self) -> Result<SocketAddr> {
        let mut line = String::new();
        self.stdout.read_line(&mut line)?;
        line.split_once(GREETING)
            .and_then(|(_, rest)| rest.split_whitespace().next()?.parse().ok())
            .with_context(|| format!("no address in what the server said first: {line:?}"))
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn pid(&self) -> u32 {
        self.running.0.id()
    }

    /// Since just before the process was made.
    pub fn age(&self) -> Duration {
        self.began.elapsed()
    }

    /// From the making of the process until it said that it serves.
    pub fn ready_after(&self) -> Duration {
        self.ready_after
    }

    /// Lets it end by itself.
    pub async fn stop(mut self) -> Result<()> {
        let pid = pid_of(&self.running.0)?;
        kill_process(pid, Signal::TERM)?;
        let ended = tokio::task::spawn_blocking(move || self.running.0.wait());
        match timeout(PATIENCE, ended).await {
            Ok(status) => {
                let status = status??;
                anyhow::ensure!(status.success(), "a server ended with {status}");
                Ok(())
            }
            Err(_) => {
                kill_process(pid, Signal::KILL)?;
                bail!("a server did not stop within {PATIENCE:?}");
            }
        }
    }
}

/// A process that serves, until it is dropped.
#[derive(Debug)]
pub struct Running(Child);

impl Running {
    /// Returns once it has said that it is ready.
    pub async fn start(mut command: Command) -> Result<Self> {
        let dir = TempDir::with_prefix("mainstay-bench-")?;
        let (socket, stderr) = (dir.path().join("notify"), dir.path().join("stderr"));
        let notified = UnixDatagram::bind(&socket)?;
        let child = command
            .env("NOTIFY_SOCKET", &socket)
            .stdin(Stdio::null())
            .stderr(File::create(&stderr)?)
            .spawn()
            .with_context(|| format!("{} cannot be run", command.get_program().display()))?;
        let running = Self(child);
        if timeout(PATIENCE, ready(&notified)).await.is_err() {
            bail!(
                "{} did not come up; it said: {}",
                command.get_program().display(),
                std::fs::read_to_string(&stderr).unwrap_or_default()
            );
        }
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

async fn ready(notified: &UnixDatagram) -> std::io::Result<()> {
    let mut message = [0; 4096];
    loop {
        let len = notified.recv(&mut message).await?;
        if message[..len]
            .split(|byte| *byte == b'\n')
            .any(|state| state == b"READY=1")
        {
            return Ok(());
        }
    }
}

fn pid_of(child: &Child) -> Result<Pid> {
    i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .context("a process id is out of range")
}
