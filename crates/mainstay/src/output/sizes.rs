//! Numbers of bytes as people read them.

const UNITS: [&str; 7] = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];

/// Three digits and a unit: `17 B`, `1.5 GiB`, `213 MiB`.
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

/// A size as people write it: `512`, `64K`, `100MiB`, `-2G`. Units are powers of 1024.
pub fn parse_size(text: &str) -> Result<i64, String> {
    let wrong = || "write a number of bytes, or one with a unit: 512, 64K, 100M, 2G".to_owned();
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
        .ok_or_else(|| "that is larger than any disk".to_owned())
}

/// How much of `whole` is `part`, rounded up as `df` does; `-` of nothing.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_unit_that_fits() {
        assert_eq!(size(0), "0 B");
        assert_eq!(size(1023), "1023 B");
        assert_eq!(size(1536), "1.5 KiB");
        assert_eq!(size(213 << 20), "213 MiB");
        assert_eq!(size(u64::MAX), "15 EiB");
    }

    #[test]
    fn sizes_are_read_as_people_write_them() {
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
    fn percents_round_up_and_nothing_has_none() {
        assert_eq!(percent(1, 1000), "1%");
        assert_eq!(percent(500, 1000), "50%");
        assert_eq!(percent(0, 1000), "0%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
    }
}
