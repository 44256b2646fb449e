//! Text of callers, repeated in answers.

const MAX_CHARS: usize = 128;

/// Cuts a caller's own text: the rest would only fill the answer.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
