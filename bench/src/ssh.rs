//! An SSH server on a loopback port, with keys generated for the run.
//!
//! There is no daemon: each connection gets a process of its own, as from inetd, which exits with
//! it.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// By its absolute path: it re-executes itself for each connection and insists on that.
const SSHD: &str = "/usr/sbin/sshd";
/// The chroot of its unprivileged process.
const EMPTY_DIRECTORY: &str = "/run/sshd";

#[derive(Debug)]
pub struct Ssh {
    dir: TempDir,
    port: u16,
}

impl Ssh {
    pub fn start() -> Result<Self> {
        ensure!(
            Path::new(SSHD).exists(),
            "{SSHD} does not exist; scripts/setup-bench installs it without starting its service"
        );
        std::fs::create_dir_all(EMPTY_DIRECTORY)
            .with_context(|| format!("cannot create {EMPTY_DIRECTORY}; run this as root"))?;
        let dir = TempDir::with_prefix("mainstay-bench-ssh-")?;
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let ssh = Self { dir, port };
        ssh.make_key("host")?;
        ssh.make_key("user")?;
        std::fs::copy(ssh.path("user.pub"), ssh.path("authorized"))?;
        let host = std::fs::read_to_string(ssh.path("host.pub"))?;
        let known = format!("[127.0.0.1]:{port} {host}");
        std::fs::write(ssh.path("known"), known)?;
        std::fs::write(ssh.path("config"), ssh.config())?;
        let config = ssh.path("config");
        // Ends with the program; nobody else knows the port.
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if let Err(error) = serve(stream, &config) {
                    eprintln!("warning: {error:#}");
                }
            }
        });
        Ok(ssh)
    }

    /// Runs a remote command with the default settings.
    pub fn command(&self, remote: &str) -> Command {
        self.with(&[], remote)
    }

    /// Uses the cipher that this kind of CPU is fastest with.
    pub fn fastest(&self, remote: &str) -> Command {
        self.with(&["-c", "aes128-gcm@openssh.com"], remote)
    }

    fn with(&self, options: &[&str], remote: &str) -> Command {
        let mut command = Command::new("ssh");
        command.args(["-F", "none", "-T", "-p", &self.port.to_string()]);
        command.arg("-i").arg(self.path("user"));
        for option in [
            "BatchMode=yes".to_owned(),
            "IdentitiesOnly=yes".to_owned(),
            "LogLevel=ERROR".to_owned(),
            "StrictHostKeyChecking=yes".to_owned(),
            format!("UserKnownHostsFile={}", self.path("known").display()),
        ] {
            command.args(["-o", &option]);
        }
        command.args(options).args(["127.0.0.1", remote]);
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn make_key(&self, name: &str) -> Result<()> {
        let made = Command::new("ssh-keygen")
            .args(["-q", "-t", "ed25519", "-N", "", "-f"])
            .arg(self.path(name))
            .stdin(Stdio::null())
            .status()
            .context("cannot run ssh-keygen")?;
        ensure!(made.success(), "ssh-keygen: {made}");
        Ok(())
    }

    fn config(&self) -> String {
        format!(
            "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nUsePAM no\n\
             PasswordAuthentication no\nPermitRootLogin prohibit-password\nLogLevel ERROR\n",
            self.path("host").display(),
            self.path("authorized").display(),
        )
    }
}

fn serve(stream: TcpStream, config: &Path) -> Result<()> {
    let socket = OwnedFd::from(stream);
    let mut child = Command::new(SSHD)
        .arg("-i")
        .arg("-f")
        .arg(config)
        .stdin(socket.try_clone()?)
        .stdout(socket)
        .spawn()
        .context("cannot run sshd")?;
    std::thread::spawn(move || child.wait());
    Ok(())
}
