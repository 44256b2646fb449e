//! The space that logs leave free on their file system.
//!
//! The writers of a node's logs are separate processes that know nothing of each other. What they
//! share is the file system, so each looks at that, and the one that writes is the one that pays.

use std::os::fd::AsFd;

use super::limits::LogLimits;

const MIB: u64 = 1024 * 1024;

/// Limits of a log while space is scarce.
pub(super) const SCARCE_LIMITS: LogLimits = LogLimits {
    file_bytes: MIB,
    total_bytes: 4 * MIB,
};

/// A share of a large disk is more than anything needs.
const ENOUGH_BYTES: u128 = 1 << 30;

/// Bytes written between two looks at the file system.
const CHECK_BYTES: u64 = MIB;

#[derive(Debug)]
pub(super) struct FreeSpace {
    /// The share that stays free; 0 for none.
    pub(super) percent: u8,
    pub(super) is_scarce: bool,
    unchecked_bytes: u64,
}

impl Default for FreeSpace {
    fn default() -> Self {
        Self {
            percent: 0,
            is_scarce: false,
            // The first write looks.
            unchecked_bytes: CHECK_BYTES,
        }
    }
}

impl FreeSpace {
    /// Notes bytes that are about to be written to `file`, and looks at its file system now and then.
    pub(super) fn wrote(&mut self, file: impl AsFd, bytes: u64) {
        if self.percent == 0 {
            self.is_scarce = false;
            return;
        }
        self.unchecked_bytes = self.unchecked_bytes.saturating_add(bytes);
        if self.unchecked_bytes < CHECK_BYTES {
            return;
        }
        self.unchecked_bytes = 0;
        // A file system that does not answer has no known share.
        if let Ok(space) = rustix::fs::fstatvfs(file) {
            let bytes = |blocks: u64| u128::from(blocks) * u128::from(space.f_frsize);
            let (available, all) = (bytes(space.f_bavail), bytes(space.f_blocks));
            self.is_scarce = is_scarce(available, all, self.percent);
        }
    }
}

/// Whether less is available than the share of all, or than what is enough on any disk.
fn is_scarce(available: u128, all: u128, percent: u8) -> bool {
    available < (all * u128::from(percent) / 100).min(ENOUGH_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_scarce_below_the_share() {
        assert!(is_scarce(9, 100, 10));
        assert!(!is_scarce(10, 100, 10));
        assert!(!is_scarce(0, 0, 10), "a file system without a size");
        let disk = 1 << 40;
        assert!(!is_scarce(ENOUGH_BYTES, disk, 10), "enough on a large disk");
        assert!(is_scarce(ENOUGH_BYTES - 1, disk, 10));
    }
}
