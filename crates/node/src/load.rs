//! Load averages: `/proc/loadavg`.

use std::io;

/// The averages over one, five and fifteen minutes.
pub fn load_averages() -> io::Result<[f64; 3]> {
    let text = std::fs::read_to_string("/proc/loadavg")?;
    parse(&text).ok_or_else(|| io::Error::other("/proc/loadavg is not as expected"))
}

fn parse(text: &str) -> Option<[f64; 3]> {
    let mut words = text.split_ascii_whitespace().map(|word| word.parse().ok());
    Some([words.next()??, words.next()??, words.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_numbers_count() {
        assert_eq!(parse("0.50 1.25 2.00 3/456 789\n"), Some([0.5, 1.25, 2.0]));
        assert_eq!(parse("0.50 x 2.00"), None);
        assert_eq!(parse(""), None);
        assert!(load_averages().unwrap().iter().all(|load| *load >= 0.0));
    }
}
