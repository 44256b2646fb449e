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
    fn percents_round_up_and_nothing_has_none() {
        assert_eq!(percent(1, 1000), "1%");
        assert_eq!(percent(500, 1000), "50%");
        assert_eq!(percent(0, 1000), "0%");
        assert_eq!(percent(0, 0), "-");
        assert_eq!(percent(u64::MAX, u64::MAX), "100%");
    }
}
