//! The node owns an ordinary distribution: its reboot is the machine's, by the init system that
//! runs, or by the kernel if there is none.

use std::io;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use rustix::system::RebootCommand;

use super::{BootId, Platform, PlatformName, PlatformWork};
use crate::Finding;

/// Services of the distribution may take their time to stop.
const END_TIMEOUT: Duration = Duration::from_secs(600);

#[derive(Debug, thiserror::Error)]
pub enum HostError {
    #[error("cannot run {program}")]
    NotRun { program: String, source: io::Error },
    #[error("{program} failed ({status}): {stderr}")]
    Failed {
        program: String,
        status: std::process::ExitStatus,
        stderr: String,
    },
    #[error("the kernel refuses to {action} the machine")]
    Kernel {
        action: &'static str,
        source: io::Error,
    },
}

/// The commands of the operator; empty ones are the init system's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Commands {
    pub reboot: Vec<String>,
    pub shut_down: Vec<String>,
}

#[derive(Debug)]
pub struct Host {
    commands: Commands,
}

/// How a machine is rebooted or turned off.
#[derive(Debug, PartialEq, Eq)]
enum Means {
    Command(Vec<String>),
    Kernel(&'static str),
}

impl Host {
    pub fn new(commands: Commands) -> Self {
        Self { commands }
    }

    fn means(
        command: &[String],
        verb: &'static str,
        kernel: &'static str,
        forced: bool,
        root: &Path,
    ) -> Means {
        if !command.is_empty() {
            return Means::Command(command.to_vec());
        }
        // The test of sd_booted(3).
        if root.join("run/systemd/system").is_dir() {
            let mut command = vec!["systemctl".to_owned()];
            if forced {
                command.push("--force".to_owned());
            }
            command.push(verb.to_owned());
            return Means::Command(command);
        }
        Means::Kernel(kernel)
    }
}

impl Platform for Host {
    fn name(&self) -> PlatformName {
        PlatformName::Host
    }

    fn mode(&self) -> &'static str {
        "metal"
    }

    fn reboot(&self, forced: bool) -> PlatformWork {
        let command = &self.commands.reboot;
        let means = Self::means(command, "reboot", "reboot", forced, Path::new("/"));
        Box::pin(async move {
            take(means).await?;
            // The next daemon reports the end, once the machine is up again.
            std::future::pending().await
        })
    }

    fn shut_down(&self, forced: bool) -> PlatformWork {
        let command = &self.commands.shut_down;
        let means = Self::means(command, "poweroff", "turn off", forced, Path::new("/"));
        Box::pin(async move { Ok(take(means).await?) })
    }

    fn is_rebooted(&self, boot: &BootId) -> Finding {
        match BootId::current() == *boot {
            true => Finding::NotDone,
            false => Finding::Done,
        }
    }

    fn end_timeout(&self) -> Duration {
        END_TIMEOUT
    }
}

async fn take(means: Means) -> Result<(), HostError> {
    match means {
        Means::Command(command) => run(command).await,
        Means::Kernel(action) => {
            let called = tokio::task::spawn_blocking(move || {
                rustix::fs::sync();
                rustix::system::reboot(match action {
                    "reboot" => RebootCommand::Restart,
                    _ => RebootCommand::PowerOff,
                })
            });
            let source = match called.await {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(errno)) => errno.into(),
                Err(_) => io::Error::other("the call panicked"),
            };
            Err(HostError::Kernel { action, source })
        }
    }
}

async fn run(command: Vec<String>) -> Result<(), HostError> {
    let program = command.join(" ");
    let (first, arguments) = match command.split_first() {
        Some((first, arguments)) => (first, arguments),
        None => return Ok(()),
    };
    let mut command = std::process::Command::new(first);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let output = tokio::task::spawn_blocking(move || command.output()).await;
    let output = output.unwrap_or_else(|panicked| Err(io::Error::other(panicked)));
    let output = output.map_err(|source| HostError::NotRun {
        program: program.clone(),
        source,
    })?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(HostError::Failed {
        program,
        status: output.status,
        stderr: stderr.trim().chars().take(500).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_init_system_that_runs_reboots_the_machine_else_the_kernel() {
        let root = tempfile::tempdir().unwrap();
        let means = |command: &[String], forced| {
            Host::means(command, "reboot", "reboot", forced, root.path())
        };
        let words =
            |text: &str| Means::Command(text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!(means(&[], false), Means::Kernel("reboot"));
        std::fs::create_dir_all(root.path().join("run/systemd/system")).unwrap();
        assert_eq!(means(&[], false), words("systemctl reboot"));
        assert_eq!(means(&[], true), words("systemctl --force reboot"));
        let own = ["kexec".to_owned(), "-e".to_owned()];
        assert_eq!(means(&own, false), words("kexec -e"));
    }

    #[tokio::test]
    async fn a_command_that_fails_is_quoted_with_its_words() {
        let words = ["sh", "-c", "echo no rights >&2; exit 3"].map(str::to_owned);
        let error = run(words.to_vec()).await.unwrap_err().to_string();
        assert!(
            error.contains("no rights") && error.contains("exit status: 3"),
            "{error}"
        );
        let missing = run(vec!["/nonexistent/reboot".to_owned()]).await;
        assert!(matches!(missing, Err(HostError::NotRun { .. })));
    }

    #[test]
    fn a_reboot_has_happened_when_the_boot_id_differs() {
        let host = Host::new(Commands::default());
        assert_eq!(host.is_rebooted(&BootId::current()), Finding::NotDone);
        assert_eq!(host.is_rebooted(&BootId("x".to_owned())), Finding::Done);
    }
}
