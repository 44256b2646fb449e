//! The node is a process among others: its lifecycle is its own, and never the machine's.

use std::sync::Arc;
use std::time::Duration;

use super::{BootId, NodeProcess, Platform, PlatformName, PlatformWork};
use crate::Finding;

/// Calls in flight have `stop_timeout` to finish; the rest takes milliseconds.
const MARGIN: Duration = Duration::from_secs(60);

pub struct Container {
    process: Arc<dyn NodeProcess>,
    stop_timeout: Duration,
}

impl Container {
    pub fn new(process: Arc<dyn NodeProcess>, stop_timeout: Duration) -> Self {
        Self {
            process,
            stop_timeout,
        }
    }
}

impl Platform for Container {
    fn name(&self) -> PlatformName {
        PlatformName::Container
    }

    fn mode(&self) -> &'static str {
        "container"
    }

    fn reboot(&self, _forced: bool) -> PlatformWork {
        self.process.restart();
        // The next daemon reports the end; it is this process, executed again.
        Box::pin(std::future::pending())
    }

    fn shut_down(&self, _forced: bool) -> PlatformWork {
        self.process.exit();
        Box::pin(std::future::ready(Ok(())))
    }

    /// Only the next daemon asks, which is the evidence.
    fn is_rebooted(&self, _boot: &BootId) -> Finding {
        Finding::Done
    }

    fn end_timeout(&self) -> Duration {
        self.stop_timeout + MARGIN
    }
}

impl std::fmt::Debug for Container {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Container")
    }
}
