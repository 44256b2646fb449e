//! Text of a node made harmless for a terminal: it can neither move the cursor, nor change colours
//! or the title, nor reorder its neighbours.

/// Returns whether a terminal may act on the character instead of showing it: control, zero-width
/// and bidirectional characters.
fn is_hidden(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// Replaces every hidden character with `?`, newlines and tabs included.
pub fn printable(text: &str) -> String {
    replace(text, |_| false)
}

/// Replaces every hidden character but newlines and tabs with `?`.
pub fn printable_lines(text: &str) -> String {
    replace(text, |c| matches!(c, '\n' | '\t'))
}

fn replace(text: &str, keep: impl Fn(char) -> bool) -> String {
    text.chars()
        .map(|c| if is_hidden(c) && !keep(c) { '?' } else { c })
        .collect()
}

/// Escapes the hidden characters that JSON permits in strings, without a change of the value.
pub fn json_for_terminal(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for c in json.chars() {
        if is_hidden(c) && c != '\n' {
            // All of them are below U+10000: one unit of UTF-16.
            escaped.push_str(&format!("\\u{:04x}", u32::from(c)));
        } else {
            escaped.push(c);
        }
    }
    escaped
}

/// Filters bytes that come in chunks, which may end within a character.
#[derive(Debug, Default)]
pub struct TerminalFilter {
    /// The start of a character whose rest is in the next chunk.
    pending: Vec<u8>,
}

impl TerminalFilter {
    /// Returns what a terminal may show of the next chunk.
    pub fn filter(&mut self, chunk: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.pending);
        bytes.extend_from_slice(chunk);
        let mut text = String::with_capacity(bytes.len());
        let mut rest: &[u8] = &bytes;
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(&printable_lines(valid));
                    break;
                }
                Err(error) => {
                    let (valid, after) = rest.split_at(error.valid_up_to());
                    text.push_str(&printable_lines(&String::from_utf8_lossy(valid)));
                    let Some(length) = error.error_len() else {
                        self.pending = after.to_vec();
                        break;
                    };
                    text.push('?');
                    rest = after.get(length..).unwrap_or_default();
                }
            }
        }
        text
    }

    /// Returns what is left at the end: `?` for an incomplete character.
    pub fn finish(&mut self) -> &'static str {
        match std::mem::take(&mut self.pending).is_empty() {
            true => "",
            false => "?",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unprintable_characters_become_question_marks() {
        assert_eq!(
            printable("a\u{202e}b\u{200b}c\td\u{9b}e é 日"),
            "a?b?c?d?e é 日"
        );
        assert_eq!(printable_lines("a\tb\r\n\x1b[2J\n"), "a\tb?\n?[2J\n");
    }

    #[test]
    fn json_keeps_its_value() {
        let value = serde_json::json!({ "a": "x\u{9b}2J\u{202e}\u{7f}\x1b\n" });
        let text = json_for_terminal(&format!("{value:#}\n"));
        assert!(text.chars().all(|c| c == '\n' || !is_hidden(c)), "{text:?}");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text).unwrap(),
            value
        );
    }

    #[test]
    fn chunks_may_end_within_a_character() {
        let bytes = "é\u{9b}日\x1b]0;x\x07\n".as_bytes();
        for split in 0..=bytes.len() {
            let mut filter = TerminalFilter::default();
            let (first, second) = bytes.split_at(split);
            let shown = filter.filter(first) + &filter.filter(second) + filter.finish();
            assert_eq!(shown, "é?日?]0;x?\n", "{split}");
        }
        let mut filter = TerminalFilter::default();
        assert_eq!(filter.filter(b"a\xffb\xc3"), "a?b");
        assert_eq!(filter.finish(), "?");
        assert_eq!(filter.finish(), "");
    }
}
