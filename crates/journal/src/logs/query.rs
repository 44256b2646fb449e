//! The part of a log to read.

use crate::Timestamp;

/// Selection of records; the default is everything there is, without following.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Only the last lines within the times.
    pub tail: Option<u64>,
    /// Only from the first record that is not older.
    pub since: Option<Timestamp>,
    /// Only before the first record that is newer.
    pub until: Option<Timestamp>,
    /// Continue with new records as they are written.
    pub follow: bool,
}
