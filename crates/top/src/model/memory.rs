//! Memory usage in bytes.

use mainstay_api::os::{self, MemInfo};

use crate::rates::{History, percent_of};

#[derive(Debug)]
pub struct Memory {
    info: MemInfo,
    /// Used memory in percent.
    pub history: History,
}

impl Memory {
    pub fn update(earlier: Option<Self>, message: &os::Memory) -> Self {
        let history = earlier.map_or_else(History::default, |memory| memory.history);
        let mut memory = Self {
            info: message.meminfo.unwrap_or_default(),
            history,
        };
        if let Some(percent) = memory.percent() {
            memory.history.push(percent);
        }
        memory
    }

    pub fn total(&self) -> u64 {
        bytes(self.info.memtotal)
    }

    /// Returns the memory that is not available without swapping.
    pub fn used(&self) -> u64 {
        bytes(self.info.memtotal.saturating_sub(self.info.memavailable))
    }

    pub fn percent(&self) -> Option<f64> {
        percent_of(self.used() as f64, self.total() as f64)
    }

    pub fn available(&self) -> u64 {
        bytes(self.info.memavailable)
    }

    pub fn cache(&self) -> u64 {
        bytes(self.info.cached.saturating_add(self.info.sreclaimable))
    }

    pub fn buffers(&self) -> u64 {
        bytes(self.info.buffers)
    }

    pub fn swap_total(&self) -> u64 {
        bytes(self.info.swaptotal)
    }

    pub fn swap_used(&self) -> u64 {
        bytes(self.info.swaptotal.saturating_sub(self.info.swapfree))
    }
}

/// Converts the kernel's KiB.
fn bytes(kib: u64) -> u64 {
    kib.saturating_mul(1024)
}
