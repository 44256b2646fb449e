//! The node is PID 1 of the machine: its end is the kernel's.
//!
//! Booting as PID 1 (mounts, consoles, reaping) is not part of this crate yet; the end is.

use std::io;
use std::time::Duration;

use rustix::system::RebootCommand;

use super::{BootId, Platform, PlatformName, PlatformWork, is_init};
use crate::{Finding, TaskError};

const END_TIMEOUT: Duration = Duration::from_secs(60);

/// The process is not PID 1, so the machine is not its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "platform \"metal\" is for a node that runs as PID 1, and this is PID {}; choose \"host\" for \
     a daemon on a distribution",
    std::process::id()
)]
pub struct NotInit;

#[derive(Debug)]
pub struct Metal(());

impl Metal {
    pub fn new() -> Result<Self, NotInit> {
        match is_init() {
            true => Ok(Self(())),
            false => Err(NotInit),
        }
    }
}

impl Platform for Metal {
    fn name(&self) -> PlatformName {
        PlatformName::Metal
    }

    fn mode(&self) -> &'static str {
        "metal"
    }

    fn reboot(&self, _forced: bool) -> PlatformWork {
        Box::pin(end(RebootCommand::Restart))
    }

    fn shut_down(&self, _forced: bool) -> PlatformWork {
        Box::pin(end(RebootCommand::PowerOff))
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

/// Writes all file systems and ends the machine; returns only if the kernel refuses.
async fn end(command: RebootCommand) -> Result<(), TaskError> {
    let called = tokio::task::spawn_blocking(move || {
        rustix::fs::sync();
        rustix::system::reboot(command)
    });
    match called.await {
        Ok(Ok(())) => std::future::pending().await,
        Ok(Err(errno)) => Err(Box::new(io::Error::from(errno))),
        Err(panicked) => Err(Box::new(panicked)),
    }
}
