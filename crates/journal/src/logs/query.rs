//! Which part of a log is asked for.

use crate::Timestamp;

/// The default asks for everything there is, and then ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogQuery {
    /// Only the last so many lines of what the times leave.
    pub tail: Option<u64>,
    /// Only from the first record that is not older.
    pub since: Option<Timestamp>,
    /// Only before the first record that is newer.
    pub until: Option<Timestamp>,
    /// Go on with new records as they are written.
    pub follow: bool,
}
