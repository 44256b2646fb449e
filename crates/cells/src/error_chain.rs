//! Errors with their causes, for log lines and for messages to other processes.

use std::error::Error;

/// Joins an error and its sources: `a: b: c`.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}
