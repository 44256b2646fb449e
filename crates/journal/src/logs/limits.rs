//! Size limits of logs.

use std::time::Duration;

const MIB: u64 = 1024 * 1024;

/// Limits of one source. A new file is started before the current one exceeds `file_bytes`; the
/// oldest files are deleted when all together exceed `total_bytes`. The newest always stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    pub file_bytes: u64,
    pub total_bytes: u64,
}

impl Default for LogLimits {
    fn default() -> Self {
        Self {
            file_bytes: 16 * MIB,
            total_bytes: 64 * MIB,
        }
    }
}

/// Retention of a log by time. Files that exceed [`LogLimits::total_bytes`] stay until their last line
/// is older than `min_age`, or all files together exceed `max_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogRetention {
    pub min_age: Duration,
    pub max_bytes: u64,
}
