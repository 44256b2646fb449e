/// Formats a count with its noun: `1 packet`, `2 packets`.
pub fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_is_singular() {
        let shown = [0, 1, 2].map(|count| counted(count, "packet"));
        assert_eq!(shown, ["0 packets", "1 packet", "2 packets"]);
    }
}
