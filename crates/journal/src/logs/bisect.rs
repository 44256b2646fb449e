//! Binary search for a time in a file whose times do not decrease.
//!
//! Lines without a time are skipped. In a file that breaks the rule the result is some line, never
//! an error.

use std::io;

use super::lines::{BLOCK, Lines};
use crate::Timestamp;
use crate::io::as_u64;

/// Returns the offset of the first record whose time `reached` accepts; the end if none does.
/// `reached` must stay true for later times once it is.
pub(super) fn find(lines: &mut Lines<'_>, reached: impl Fn(Timestamp) -> bool) -> io::Result<u64> {
    // Every record that begins before `low` is too early; `best` is the first one known not to
    // be; what is open begins in `low..high`. `low` is always the beginning of a line.
    let mut low = 0;
    let mut high = lines.end();
    let mut best = lines.end();
    // A long line may carry `low` beyond `high`.
    while high.saturating_sub(low) > as_u64(BLOCK) {
        let middle = low + (high - low) / 2;
        match first_timed(lines, middle, high)? {
            None => high = middle,
            Some((start, time)) if reached(time) => {
                best = start;
                high = middle;
            }
            Some((start, _)) => low = lines.after_newline(start)?,
        }
    }
    let mut at = low;
    while let Some((start, time)) = first_timed(lines, at, high)? {
        if reached(time) {
            return Ok(start);
        }
        at = lines.after_newline(start)?;
    }
    Ok(best)
}

/// The first record with a time that begins in `from..before`.
fn first_timed(
    lines: &mut Lines<'_>,
    from: u64,
    before: u64,
) -> io::Result<Option<(u64, Timestamp)>> {
    let mut start = lines.start_from(from)?;
    while start < before {
        if let Some(time) = lines.header_at(start)?.time {
            return Ok(Some((start, time)));
        }
        start = lines.after_newline(start)?;
    }
    Ok(None)
}
