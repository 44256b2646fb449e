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
            self.is_scarce = is_scarce(space.f_bavail, space.f_blocks, self.percent);
        }
    }
}

fn is_scarce(available: u64, all: u64, percent: u8) -> bool {
    u128::from(available) * 100 < u128::from(all) * u128::from(percent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn space_is_scarce_below_the_share() {
        assert!(is_scarce(9, 100, 10));
        assert!(!is_scarce(10, 100, 10));
        assert!(!is_scarce(0, 0, 10), "a file system without a size");
        assert!(is_scarce(u64::MAX / 11, u64::MAX, 10));
    }
}
