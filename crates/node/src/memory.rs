//! Memory statistics: `/proc/meminfo`, in the units it is printed in.

use std::io;

/// One line: a name and a number. Most are KiB; counts of huge pages are counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryInfo {
    values: Vec<(String, u64)>,
}

impl MemoryInfo {
    pub fn read() -> io::Result<Self> {
        Ok(Self::parse(&std::fs::read_to_string("/proc/meminfo")?))
    }

    /// Parses the file without lines that are not `Name: number`.
    pub fn parse(text: &str) -> Self {
        let line = |line: &str| {
            let (name, rest) = line.split_once(':')?;
            let value = rest.split_ascii_whitespace().next()?.parse().ok()?;
            Some((name.trim().to_owned(), value))
        };
        Self {
            values: text.lines().filter_map(line).collect(),
        }
    }

    /// Returns the value of a line; 0 if this kernel has none.
    pub fn get(&self, name: &str) -> u64 {
        self.values
            .iter()
            .find(|(key, _)| key == name)
            .map_or(0, |(_, value)| *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_as_printed_and_missing_ones_are_zero() {
        let info = MemoryInfo::parse(
            "MemTotal:       24000000 kB\nHugePages_Total:       7\nbad\nAlso bad: x kB\n",
        );
        assert_eq!(info.get("MemTotal"), 24_000_000);
        assert_eq!(info.get("HugePages_Total"), 7);
        assert_eq!(info.get("CmaFree"), 0);
        assert_eq!(info.get("Also bad"), 0);
    }

    #[test]
    fn this_machine_has_memory() {
        let info = MemoryInfo::read().unwrap();
        assert!(info.get("MemTotal") >= info.get("MemAvailable"));
        assert!(info.get("MemTotal") > 0);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in ".{0,300}") {
            let _ = MemoryInfo::parse(&text).get("MemTotal");
        }
    }
}
