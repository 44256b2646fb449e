//! Lines out of a stream of bytes whose pieces end anywhere.

#[derive(Debug, Default)]
pub struct LineSplitter {
    unfinished: Vec<u8>,
}

impl LineSplitter {
    /// The lines that `bytes` completes, without their newlines.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<String> {
        self.unfinished.extend_from_slice(bytes);
        let Some(end) = self.unfinished.iter().rposition(|b| *b == b'\n') else {
            return Vec::new();
        };
        let rest = self.unfinished.split_off(end + 1);
        let done = std::mem::replace(&mut self.unfinished, rest);
        done[..end]
            .split(|b| *b == b'\n')
            .map(|line| String::from_utf8_lossy(line).into_owned())
            .collect()
    }

    /// What came after the last newline.
    pub fn rest(&self) -> Option<String> {
        (!self.unfinished.is_empty())
            .then(|| String::from_utf8_lossy(&self.unfinished).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_may_end_anywhere() {
        let mut lines = LineSplitter::default();
        assert!(lines.push(b"on").is_empty());
        assert_eq!(lines.push(b"e\ntwo\n\nth"), ["one", "two", ""]);
        assert_eq!(lines.push(b"ree\n"), ["three"]);
        assert_eq!(lines.rest(), None);
        lines.push(b"end");
        assert_eq!(lines.rest().as_deref(), Some("end"));
    }
}
