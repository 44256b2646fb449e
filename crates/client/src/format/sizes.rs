const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Formats bytes with a binary unit: `17 B`, `1.5 GiB`, `213 MiB`.
pub fn size(bytes: u64) -> String {
    let mut unit = 0;
    let mut whole = bytes;
    let mut rest = 0;
    while whole >= 1024 && unit + 1 < UNITS.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    if unit > 0 && whole < 10 {
        format!("{whole}.{} {}", rest * 10 / 1024, UNITS[unit])
    } else {
        format!("{whole} {}", UNITS[unit])
    }
}

/// Parses a size: `512`, `64K`, `100MiB`, `-2G`. Units are powers of 1024.
pub fn parse_size(text: &str) -> Result<i64, String> {
    let wrong = || "write a number of bytes, optionally with a unit: 512, 64K, 100M, 2G".to_owned();
    let end = text
        .rfind(|c: char| c.is_ascii_digit())
        .map_or(0, |last| last + 1);
    let (number, unit) = text.split_at(end);
    let number: i64 = number.parse().map_err(|_| wrong())?;
    let unit = unit.trim_start();
    let power = UNITS
        .iter()
        .position(|known| {
            let letter = &known[..1];
            unit.eq_ignore_ascii_case(known) || unit.eq_ignore_ascii_case(letter)
        })
        .or(unit.is_empty().then_some(0))
        .ok_or_else(wrong)?;
    UNITS[..power]
        .iter()
        .try_fold(number, |bytes, _| bytes.checked_mul(1024))
        .ok_or_else(|| "the size is too large; the maximum is 7E".to_owned())
}

/// Formats `part` as a percentage of `whole`, rounded up as `df` does; `-` if `whole` is 0.
pub fn percent(part: u64, whole: u64) -> String {
    match u128::from(part)
        .saturating_mul(100)
        .checked_div(u128::from(whole))
    {
        Some(percent) => {
            let exact = u128::from(part) * 100 == percent * u128::from(whole);
            format!("{}%", if exact { percent } else { percent + 1 })
        }
        None => "-".to_owned(),
    }
}

/// Formats CPU time as `1:02.5` (minutes, seconds, tenths), as `ps` and `top` do.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float saturates, and CPU time is never negative"
)]
pub fn cpu_time(seconds: f64) -> String {
    let tenths = (seconds * 10.0) as u64;
    format!("{}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_size_has_the_largest_fitting_unit() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(213 << 20), "213 MiB");
        assert_eq!(size(u64::MAX), "15 EiB");
    }

    #[test]
    fn sizes_are_parsed_with_and_without_units() {
        for (text, bytes) in [
            ("0", 0),
            ("512", 512),
            ("512B", 512),
            ("64K", 64 << 10),
            ("64 kib", 64 << 10),
            ("100M", 100 << 20),
            ("-2GiB", -(2 << 30)),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
        for text in [
            "",
            "M",
            "1X",
            "1.5G",
            "--1",
            "1 0",
            "9999999999999999999",
            "8E",
            "1KB",
        ] {
            assert!(parse_size(text).is_err(), "{text}");
        }
    }

    #[test]
    fn percentages_round_up() {
        assert_eq!(percent(1, 1000), "1%");
        assert_eq!(percent(500, 1000), "50%");
        assert_eq!(percent(0, 1000), "0%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
    }

    #[test]
    fn cpu_time_is_in_minutes_and_seconds() {
        assert_eq!(cpu_time(62.55), "1:02.5");
        assert_eq!(cpu_time(59.99), "0:59.9");
        assert_eq!(cpu_time(-1.0), "0:00.0");
    }
}
