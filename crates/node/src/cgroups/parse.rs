//! The formats of the files of a cgroup. Accepts any text; what is missing is 0 or `None`.

use super::usage::{Io, Pressure, Stall};

/// A v1 limit of this size or more is none: the kernel rounds "unlimited" to pages.
const UNLIMITED: u64 = 1 << 62;

/// Returns one counter of a file of `name value` lines.
pub(super) fn counter(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(' '));
    let (_, value) = lines.find(|(key, _)| *key == name)?;
    value.trim().parse().ok()
}

/// Returns a limit; `None` for `max` and for the huge number of v1.
pub(super) fn limit(text: &str) -> Option<u64> {
    let limit: u64 = text.trim().parse().ok()?;
    (limit < UNLIMITED).then_some(limit)
}

/// Returns the CPUs of a quota and a period; `None` without a quota.
pub(super) fn cpus(quota: &str, period: &str) -> Option<f64> {
    let quota: u32 = quota.trim().parse().ok()?;
    let period: u32 = period.trim().parse().ok()?;
    (period > 0).then(|| f64::from(quota) / f64::from(period))
}

/// Sums `io.stat` of v2: `8:0 rbytes=1 wbytes=2 rios=3 wios=4 …` for each device.
pub(super) fn io_v2(text: &str) -> Io {
    let mut io = Io::default();
    for word in text.split_ascii_whitespace() {
        let Some((name, value)) = word.split_once('=') else {
            continue;
        };
        let value: u64 = value.parse().unwrap_or(0);
        let sum = match name {
            "rbytes" => &mut io.read_bytes,
            "wbytes" => &mut io.written_bytes,
            "rios" => &mut io.reads,
            "wios" => &mut io.writes,
            _ => continue,
        };
        *sum = sum.saturating_add(value);
    }
    io
}

/// Sums the reads and writes of a v1 file: `8:0 Read 1` for each device and direction.
pub(super) fn io_v1(text: &str) -> (u64, u64) {
    let mut sums = (0_u64, 0_u64);
    for line in text.lines() {
        let mut words = line.split_ascii_whitespace().skip(1);
        let (direction, value) = (words.next(), words.next());
        let value: u64 = value.and_then(|value| value.parse().ok()).unwrap_or(0);
        match direction {
            Some("Read") => sums.0 = sums.0.saturating_add(value),
            Some("Write") => sums.1 = sums.1.saturating_add(value),
            _ => {}
        }
    }
    sums
}

/// Parses pressure stall information: `some avg10=0.00 avg60=0.00 avg300=0.00 total=0`.
pub(super) fn pressure(text: &str) -> Option<Pressure> {
    let of = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        let mut stall = Stall::default();
        for word in line.split_ascii_whitespace() {
            let (name, value) = word.split_once('=')?;
            let average = || value.parse().ok().filter(|value: &f64| value.is_finite());
            match name {
                "avg10" => stall.avg10 = average()?,
                "avg60" => stall.avg60 = average()?,
                "avg300" => stall.avg300 = average()?,
                "total" => stall.total_micros = value.parse().ok()?,
                _ => {}
            }
        }
        Some(stall)
    };
    Some(Pressure {
        some: of("some ")?,
        // Kernels before 5.13 have no line for the CPU.
        full: of("full ").unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn limits_are_none_without_one() {
        assert_eq!(limit("4096\n"), Some(4096));
        for none in ["max\n", "9223372036854771712\n", "", "-1"] {
            assert_eq!(limit(none), None);
        }
        assert_eq!(cpus("150000", "100000\n"), Some(1.5));
        assert_eq!(cpus("max", "100000"), None);
        assert_eq!(cpus("1", "0"), None);
    }

    proptest! {
        #[test]
        fn no_text_causes_a_panic(text in "(?s).{0,200}") {
            let _ = (counter(&text, "x"), limit(&text), cpus(&text, &text), io_v2(&text));
            let _ = (io_v1(&text), pressure(&text));
        }
    }
}
