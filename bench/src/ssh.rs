//! An SSH server of our own: on a loopback port, with keys made for the run, gone with it.
//!
//! There is no daemon: whoever connects gets a process of their own, as from inetd, which ends with
//! the connection.

use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use tempfile::TempDir;

/// By its whole path: it starts itself again for each connection and insists on that.
const SSHD: &str = "/usr/sbin/sshd";
/// Where it locks up the part of itself that talks to strangers.
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
            "{SSHD} is missing; scripts/setup-bench installs it and keeps it from serving"
        );
        std::fs::create_dir_all(EMPTY_DIRECTORY)
            .with_context(|| format!("{EMPTY_DIRECTORY} cannot be made; run this as root"))?;
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

    /// Runs something on the other side, as a user would who has just installed it.
    pub fn command(&self, remote: &str) -> Command {
        self.with(&[], remote)
    }

    /// The same with the cipher that this kind of processor is fastest with.
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
            .context("ssh-keygen cannot be run")?;
        ensure!(made.success(), "ssh-keygen ended with {made}");
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
        .context("sshd cannot be run")?;
    std::thread::spawn(move || child.wait());
    Ok(())
}
