//! The latest lines of the followed log, bounded in number and length.

use std::collections::VecDeque;

use mainstay_client::format::printable;

const MAX_LINES: usize = 1000;
const MAX_LINE_BYTES: usize = 2048;

#[derive(Debug, Default)]
pub struct LogLines {
    lines: VecDeque<String>,
    /// Bytes after the last newline, up to the length of a line.
    unfinished: Vec<u8>,
    /// The error that interrupts the log.
    pub error: Option<String>,
}

impl LogLines {
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// Appends bytes that may end anywhere. Returns the number of lines they complete.
    pub fn push(&mut self, mut bytes: &[u8]) -> usize {
        self.error = None;
        let mut completed = 0;
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.keep(&bytes[..end]);
            let line = printable(&String::from_utf8_lossy(&self.unfinished));
            self.unfinished.clear();
            if self.lines.len() == MAX_LINES {
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
        let room = MAX_LINE_BYTES.saturating_sub(self.unfinished.len());
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
    fn chunks_may_end_anywhere_and_control_characters_are_replaced() {
        let mut log = LogLines::default();
        assert_eq!(log.push(b"on"), 0);
        assert_eq!(log.push(b"e\n\ntw\x1b[2Jo\xff\nth"), 3);
        assert_eq!(all(&log), ["one", "", "tw?[2Jo\u{fffd}"]);
    }

    #[test]
    fn lines_are_bounded_in_number_and_length() {
        let mut log = LogLines::default();
        for _ in 0..100 {
            log.push(&vec![b'x'; 1 << 16]);
        }
        assert!(log.unfinished.capacity() < 1 << 16);
        log.push(b"\n");
        assert_eq!(all(&log)[0].len(), MAX_LINE_BYTES);
        for line in 0..3 * MAX_LINES {
            log.push(format!("{line}\n").as_bytes());
        }
        assert_eq!(log.len(), MAX_LINES);
        assert_eq!(all(&log)[0], (2 * MAX_LINES).to_string());
    }
}
