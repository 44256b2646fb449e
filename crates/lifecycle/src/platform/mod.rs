//! The platform of the node: what its reboot and shutdown do.

mod container;
mod host;
mod metal;

use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use crate::{Finding, TaskError};

pub use container::Container;
pub use host::{Commands, Host, HostError};
pub use metal::{Metal, NotInit};

pub type PlatformWork = Pin<Box<dyn Future<Output = Result<(), TaskError>> + Send>>;

/// The name of a platform in the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PlatformName {
    /// The node is a process, or a container; its lifecycle never touches the host.
    Container,
    /// The node owns an ordinary distribution, which its lifecycle reboots.
    Host,
    /// The node is PID 1 of the machine.
    Metal,
}

/// The process of the node, as the daemon gives it to a platform.
pub trait NodeProcess: Send + Sync + 'static {
    /// Ends the daemon in good order and executes it again in place. Returns at once.
    fn restart(&self);
    /// Ends the daemon in good order and exits with 0. Returns at once.
    fn exit(&self);
}

/// How a sequence ends. `reboot` and `shut_down` begin the end and return when it is certain, or
/// never.
pub trait Platform: Send + Sync + std::fmt::Debug + 'static {
    fn name(&self) -> PlatformName;

    /// As `Version.platform.mode` names it: `metal`, `cloud` or `container`. Only `container` says
    /// that a reboot leaves the machine running.
    fn mode(&self) -> &'static str;

    /// Starts the node again, from its own process (`container`) or with the machine.
    fn reboot(&self, forced: bool) -> PlatformWork;

    /// Ends the node, or turns the machine off.
    fn shut_down(&self, forced: bool) -> PlatformWork;

    /// Whether a reboot that the last daemon began has happened; `boot` is the boot in which it
    /// began.
    fn is_rebooted(&self, boot: &BootId) -> Finding;

    /// The bound on the end of the daemon, or of the machine, once it is asked for.
    fn end_timeout(&self) -> Duration;
}

/// The kernel's id of the current boot.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct BootId(String);

impl BootId {
    /// Reads the id; one that cannot be read equals itself only.
    pub fn current() -> Self {
        let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
        Self(text.unwrap_or_default().trim().to_owned())
    }
}

impl std::fmt::Display for BootId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl PlatformName {
    /// The platform of a process that is configured for none: PID 1 of a machine boots it, any
    /// other process is a guest on it.
    pub fn detect() -> Self {
        /// The inode of the machine's own PID namespace (`PROC_PID_INIT_INO`).
        const INITIAL: &str = "pid:[4026531836]";
        let namespace = std::fs::read_link("/proc/self/ns/pid");
        let is_machine = namespace.is_ok_and(|it| it == Path::new(INITIAL));
        match is_init() && is_machine {
            true => Self::Metal,
            false => Self::Container,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Container => "container",
            Self::Host => "host",
            Self::Metal => "metal",
        }
    }
}

/// Returns whether this process is PID 1 of its PID namespace.
pub fn is_init() -> bool {
    std::process::id() == 1
}

impl std::fmt::Display for PlatformName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}
