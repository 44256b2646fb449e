//! Names of files in the archive, from names of nodes and logs.

/// A name that is safe in an archive: letters, digits, `.`, `_` and `-`, no leading dot.
pub(super) fn file_name(text: &str) -> String {
    const MAX_CHARS: usize = 100;
    let safe = |c: char| match c {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => c,
        _ => '_',
    };
    let name: String = text.chars().take(MAX_CHARS).map(safe).collect();
    match name.as_bytes().first() {
        None => "_".to_owned(),
        Some(b'.' | b'-') => format!("_{name}"),
        Some(_) => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_nodes_are_safe_in_an_archive() {
        for (text, wanted) in [
            ("10.0.0.5:50000", "10.0.0.5_50000"),
            ("../../etc", "_.._.._etc"),
            ("", "_"),
            ("web/a b\x1b", "web_a_b_"),
            ("-rf", "_-rf"),
        ] {
            assert_eq!(file_name(text), wanted);
        }
        assert_eq!(file_name(&"x".repeat(1000)).len(), 100);
    }
}
