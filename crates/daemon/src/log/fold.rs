//! Folding of repeated lines: the first is written at once, and those that repeat it within a
//! window become one line with their count. A single repetition is a line like the first.
//!
//! The table is bounded. A count is never lost: it is written at the end of its window, when the log
//! is read, and when the log is closed. Readings write a bounded number of lines in a window: a caller
//! could otherwise fill the log by reading it after each call.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use mainstay_journal::Timestamp;

/// Repetitions within this time become one line.
const WINDOW: Duration = Duration::from_secs(60);
/// Different lines folded at the same time.
const MAX_FOLDED: usize = 1024;
/// Lines written before the end of a window; beyond this, counts wait for it.
const MAX_EARLY_LINES: usize = 4096;

/// A line that may repeat. Its parts are text as a log line shows them.
#[derive(Debug, Clone, Copy)]
pub struct Repeatable<'a> {
    /// The word after the time, such as `INFO call`.
    pub kind: &'a str,
    /// The part that this line has when it repeats no other.
    pub words: &'a str,
    /// The part that all repetitions share.
    pub shared: &'a str,
    /// Lines with the same key are folded.
    pub key: &'a str,
    /// Replaces `shared` and `key` while the table is full. Without it the line is written as it is.
    pub rest: Option<&'a str>,
    pub took: Duration,
}

/// Counts of lines that are not written yet.
#[derive(Debug, Default)]
pub struct Folds {
    counts: HashMap<String, Count>,
    /// The end of the window.
    due: Option<Instant>,
    /// Lines written before the end of this window.
    early: usize,
}

#[derive(Debug, Default)]
struct Count {
    kind: String,
    shared: String,
    repeated: u64,
    /// The line of the only repetition.
    single: Option<String>,
    total: Duration,
    longest: Duration,
}

impl Folds {
    /// Counts a repetition. Returns the line to write if it is the first of its kind.
    pub fn add(&mut self, time: Timestamp, line: &Repeatable<'_>) -> Option<String> {
        let full = self.counts.len() >= MAX_FOLDED && !self.counts.contains_key(line.key);
        let (key, shared) = match (full, line.rest) {
            (true, None) => return Some(line.single(time)),
            (true, Some(rest)) => (rest, rest),
            (false, _) => (line.key, line.shared),
        };
        if let Some(count) = self.counts.get_mut(key) {
            count.repeated += 1;
            count.single = (count.repeated == 1).then(|| line.single(time));
            count.total += line.took;
            count.longest = count.longest.max(line.took);
            return None;
        }
        let count = Count {
            kind: line.kind.to_owned(),
            shared: shared.to_owned(),
            ..Count::default()
        };
        self.counts.insert(key.to_owned(), count);
        self.due.get_or_insert_with(|| Instant::now() + WINDOW);
        Some(line.single(time))
    }

    /// Returns the time left in the window; `None` if nothing is folded.
    pub fn time_left(&self) -> Option<Duration> {
        self.due
            .map(|due| due.saturating_duration_since(Instant::now()))
    }

    /// Returns a line for each count. At the end of the window, lines that did not repeat within it
    /// are forgotten.
    pub fn take_lines(&mut self, time: Timestamp) -> Vec<String> {
        let ended = self.time_left() == Some(Duration::ZERO);
        let mut lines = Vec::new();
        self.counts.retain(|_, count| {
            let repeats = count.repeated > 0;
            if repeats {
                let single = count.single.take();
                lines.push(single.unwrap_or_else(|| count.line(time)));
                count.reset();
            }
            repeats || !ended
        });
        if ended {
            self.due = (!self.counts.is_empty()).then(|| Instant::now() + WINDOW);
            self.early = 0;
        } else {
            self.early += lines.len();
        }
        lines
    }

    /// Returns whether counts may be written before the end of the window.
    pub fn may_be_early(&self) -> bool {
        self.early < MAX_EARLY_LINES
    }
}

impl Repeatable<'_> {
    /// Returns the line as it is written when it repeats no other.
    pub fn single(&self, time: Timestamp) -> String {
        let mut text = String::with_capacity(224);
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "{time} {} {} took={}us",
            self.kind,
            self.words,
            self.took.as_micros()
        );
        text
    }
}

impl Count {
    fn reset(&mut self) {
        self.repeated = 0;
        self.total = Duration::ZERO;
        self.longest = Duration::ZERO;
    }

    fn line(&self, time: Timestamp) -> String {
        let mean = self.total.as_micros() / u128::from(self.repeated.max(1));
        format!(
            "{time} {} {} count={} took_mean={mean}us took_max={}us",
            self.kind,
            self.shared,
            self.repeated,
            self.longest.as_micros()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(shared: &'a str, rest: Option<&'a str>) -> Repeatable<'a> {
        Repeatable {
            kind: "INFO call",
            words: shared,
            shared,
            key: shared,
            rest,
            took: Duration::from_micros(10),
        }
    }

    #[test]
    fn repetitions_become_one_line_with_their_count() {
        let mut folds = Folds::default();
        let now = Timestamp::now();
        let first = folds.add(now, &line("method=/a", None)).unwrap();
        assert_eq!(first, format!("{now} INFO call method=/a took=10us"));
        for took in [30, 20, 40] {
            let again = Repeatable {
                took: Duration::from_micros(took),
                ..line("method=/a", None)
            };
            assert_eq!(folds.add(now, &again), None);
        }
        assert!(folds.add(now, &line("method=/b", None)).is_some());
        let expected = format!("{now} INFO call method=/a count=3 took_mean=30us took_max=40us");
        assert_eq!(folds.take_lines(now), [expected]);
        assert_eq!(folds.take_lines(now), Vec::<String>::new());
        assert_eq!(folds.add(now, &line("method=/a", None)), None);
    }

    #[test]
    fn a_single_repetition_is_an_ordinary_line_with_its_own_time() {
        let mut folds = Folds::default();
        let now = Timestamp::now();
        let later = Timestamp::from_nanos(now.as_nanos() + 5_000_000_000);
        assert!(folds.add(now, &line("method=/a", None)).is_some());
        assert_eq!(folds.add(now, &line("method=/a", None)), None);
        let expected = format!("{now} INFO call method=/a took=10us");
        assert_eq!(folds.take_lines(later), [expected]);
        assert_eq!(folds.take_lines(later), Vec::<String>::new());
        for _ in 0..2 {
            assert_eq!(folds.add(now, &line("method=/a", None)), None);
        }
        assert!(folds.take_lines(later)[0].contains(" count=2 "));
    }

    #[test]
    fn a_line_that_stops_repeating_is_forgotten_after_a_window() {
        let mut folds = Folds::default();
        let now = Timestamp::now();
        let _ = folds.add(now, &line("method=/a", None));
        let _ = folds.add(now, &line("method=/a", None));
        folds.due = Some(Instant::now());
        assert_eq!(folds.take_lines(now).len(), 1);
        assert!(folds.time_left().is_some(), "it may go on");
        folds.due = Some(Instant::now());
        assert_eq!(folds.take_lines(now).len(), 0);
        assert_eq!(folds.time_left(), None);
        assert!(folds.add(now, &line("method=/a", None)).is_some());
    }

    #[test]
    fn lines_before_the_end_of_a_window_are_bounded() {
        let mut folds = Folds::default();
        let now = Timestamp::now();
        let mut early = 0;
        let _ = folds.add(now, &line("method=/a", None));
        while folds.may_be_early() {
            let _ = folds.add(now, &line("method=/a", None));
            early += folds.take_lines(now).len();
        }
        assert_eq!(early, MAX_EARLY_LINES);
        let _ = folds.add(now, &line("method=/a", None));
        folds.due = Some(Instant::now());
        assert_eq!(folds.take_lines(now).len(), 1);
        assert!(folds.may_be_early());
    }

    #[test]
    fn the_table_is_bounded_and_counts_all_the_same() {
        let mut folds = Folds::default();
        let now = Timestamp::now();
        let mut written = 0;
        for number in 0..10 * MAX_FOLDED {
            let shared = format!("method=/{number}");
            written += u64::from(folds.add(now, &line(&shared, Some("method=*"))).is_some());
        }
        assert!(folds.counts.len() <= MAX_FOLDED + 1);
        let counts = folds.counts.values().map(|count| count.repeated);
        assert_eq!(written + counts.sum::<u64>(), 10 * MAX_FOLDED as u64);
        // Without a line to share, each is written.
        assert!(folds.add(now, &line("method=/x", None)).is_some());
        assert!(folds.add(now, &line("method=/x", None)).is_some());
    }
}
