//! The last lines of the log that is followed. Neither its length nor that of a line is the
//! node's to choose.

use std::collections::VecDeque;

use crate::output::printable;

const MOST_LINES: usize = 1000;
const MOST_LINE_BYTES: usize = 2048;

#[derive(Debug, Default)]
pub struct LogLines {
    lines: VecDeque<String>,
    /// What came after the last newline, as much of it as will be shown.
    unfinished: Vec<u8>,
    /// Why nothing comes.
    pub trouble: Option<String>,
}

impl LogLines {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Takes in bytes whose pieces end anywhere; tells how many lines they completed.
    pub fn push(&mut self, mut bytes: &[u8]) -> usize {
        self.trouble = None;
        let mut completed = 0;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            let line = printable(&String::from_utf8_lossy(&self.unfinished));
            self.unfinished.clear();
            if self.lines.len() == MOST_LINES {
                self.lines.pop_front();
            }
            self.lines.push_back(line);
            completed += 1;
            bytes = &bytes[end + 1..];
        }
        self.keep(bytes);
        completed
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = MOST_LINE_BYTES.saturating_sub(self.unfinished.len());
        let kept = bytes.get(..room).unwrap_or(bytes);
        self.unfinished.extend_from_slice(kept);
    }

    pub fn len(&self) -> usize {
        self.lines.len()
    }

    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    pub fn range(&self, lines: std::ops::Range<usize>) -> impl Iterator<Item = &str> {
        self.lines.range(lines).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(log: &LogLines) -> Vec<&str> {
        log.range(0..log.len()).collect()
    }

    #[test]
    fn pieces_may_end_anywhere_and_nothing_moves_the_cursor() {
        let mut log = LogLines::default();
        assert_eq!(log.push(b"on"), 0);
        assert_eq!(log.push(b"e\n\ntw\x1b[2Jo\xff\nth"), 3);
        assert_eq!(all(&log), ["one", "", "tw?[2Jo\u{fffd}"]);
    }

    #[test]
    fn neither_many_lines_nor_a_long_one_fill_the_memory() {
        let mut log = LogLines::default();
        for _ in 0..100 {
            log.push(&vec![b'x'; 1 << 16]);
        }
        assert!(log.unfinished.capacity() < 1 << 16);
        log.push(b"\n");
        assert_eq!(all(&log)[0].len(), MOST_LINE_BYTES);
        for line in 0..3 * MOST_LINES {
            log.push(format!("{line}\n").as_bytes());
        }
        assert_eq!(log.len(), MOST_LINES);
        assert_eq!(all(&log)[0], (2 * MOST_LINES).to_string());
    }
}
