//! Size limits of logs.

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
