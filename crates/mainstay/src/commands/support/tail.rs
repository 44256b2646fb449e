//! The end of a log or stream, within a bound.

/// The end of a log or stream that is kept, in bytes.
const MAX_LOG_BYTES: usize = 4 << 20;

/// The end of a text, within its bound.
#[derive(Default)]
pub(super) struct Tail {
    bytes: Vec<u8>,
}

impl Tail {
    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        // Cut seldom: each cut moves what stays.
        if self.bytes.len() > 2 * MAX_LOG_BYTES {
            self.cut();
        }
    }

    /// Keeps whole lines.
    fn cut(&mut self) {
        let excess = self.bytes.len().saturating_sub(MAX_LOG_BYTES);
        if excess == 0 {
            return;
        }
        let line = self.bytes[excess..].iter().position(|byte| *byte == b'\n');
        self.bytes
            .drain(..line.map_or(excess, |at| excess + at + 1));
    }

    pub(super) fn into_bytes(mut self) -> Vec<u8> {
        self.cut();
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_long_log_is_kept_in_whole_lines() {
        let mut tail = Tail::default();
        let line = format!("{}\n", "x".repeat(1023));
        for _ in 0..(3 * MAX_LOG_BYTES / line.len()) {
            tail.push(line.as_bytes());
        }
        tail.push(b"last\n");
        let kept = tail.into_bytes();
        assert!(kept.len() <= MAX_LOG_BYTES && kept.len() > MAX_LOG_BYTES - 2048);
        assert!(kept.ends_with(b"x\nlast\n") && kept.starts_with(b"xxx"));
    }
}
