//! How large logs may grow.

const MIB: u64 = 1024 * 1024;

/// Limits of one source. A file is left for a new one before it would grow beyond `file_bytes`;
/// the oldest files go when all together exceed `total_bytes`. The newest always stays.
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
