//! Text of callers, repeated in answers, the names they may have meant, and paths as text.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

const MAX_CHARS: usize = 128;

/// Cuts a caller's own text: the rest would only fill the answer.
pub fn shorten(text: &str) -> String {
    match text.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Names compared at most, and the length of each that counts: the effort of one comparison is the
/// product of both lengths.
const MAX_COMPARED: usize = 256;
const MAX_COMPARED_CHARS: usize = 64;
/// The least similarity of a close match, from 0 to 1.
const MIN_SIMILARITY: f64 = 0.6;
const MAX_CLOSE: usize = 3;

/// Returns the names closest to `wanted`, the closest first; none if no name is similar.
pub fn close_matches<'a>(wanted: &str, names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let cut = |text: &str| text.chars().take(MAX_COMPARED_CHARS).collect::<String>();
    let wanted = cut(wanted).to_lowercase();
    let similarity = |name: &str| {
        let name = cut(name).to_lowercase();
        // The last part of a path-like name is what people remember.
        let last = name.rsplit('/').next().unwrap_or(&name);
        let whole = strsim::normalized_damerau_levenshtein(&wanted, &name);
        whole.max(strsim::normalized_damerau_levenshtein(&wanted, last))
    };
    let mut close: Vec<(f64, &str)> = names
        .take(MAX_COMPARED)
        .map(|name| (similarity(name), name))
        .filter(|(similarity, _)| *similarity >= MIN_SIMILARITY)
        .collect();
    close.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    close.truncate(MAX_CLOSE);
    close.into_iter().map(|(_, name)| name).collect()
}

/// Returns the path that a string of the API stands for.
pub fn path_from_wire(wire: &str) -> PathBuf {
    PathBuf::from(OsString::from_vec(mainstay_paths::from_wire(wire)))
}

/// Returns a path as a string of the API; UTF-8 as it is, other bytes as `mainstay_paths` has them.
pub fn path_to_wire(path: &Path) -> String {
    mainstay_paths::to_wire(path.as_os_str().as_bytes()).into_owned()
}

/// Returns a path for an error message: printable, and not too long.
pub fn shown_path(path: &Path) -> String {
    shorten(&mainstay_paths::escape(path.as_os_str().as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_matches_are_names_with_a_typing_error() {
        let names = ["audit", "denied", "kernel", "mainstay", "web/server"];
        for (wanted, close) in [
            ("mainsty", vec!["mainstay"]),
            ("Kernle", vec!["kernel"]),
            ("serve", vec!["web/server"]),
            ("web/servre", vec!["web/server"]),
            ("nosuch", vec![]),
            ("", vec![]),
        ] {
            assert_eq!(close_matches(wanted, names.into_iter()), close, "{wanted}");
        }
        let long = "x".repeat(1 << 20);
        assert_eq!(close_matches(&long, names.into_iter()), Vec::<&str>::new());
    }
}
