//! Links in the errors of libraries.

/// Removes links to the manuals of libraries, which the TLS library adds to some errors: an operator
/// cannot act on them.
pub fn without_links(text: &str) -> String {
    let mut kept = text.to_owned();
    while let Some(start) = kept.find("https://docs.rs/") {
        let rest = kept.split_off(start);
        kept.truncate(kept.trim_end_matches([' ', ':', ',', ';', '(']).len());
        if let Some(end) = rest.find(char::is_whitespace) {
            kept.push_str(&rest[end..]);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_links_are_removed() {
        let eof = "peer closed connection: https://docs.rs/rustls/latest/x.html#unexpected-eof";
        assert_eq!(without_links(eof), "peer closed connection");
        assert_eq!(
            without_links("a (https://docs.rs/a b, see https://docs.rs/b"),
            "a b, see"
        );
        assert_eq!(without_links("https://10.0.0.1/"), "https://10.0.0.1/");
    }
}
