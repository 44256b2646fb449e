//! Timestamps as nanoseconds since the epoch, and their RFC 3339 text.
//!
//! The text is written into every log line, so both directions are hand-written, work on bytes
//! and never allocate. Parsing never panics; malformed text is `None`.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

const NANOS_PER_SEC: i64 = 1_000_000_000;
const SECS_PER_DAY: i64 = 86_400;

/// Nanoseconds since 1970-01-01T00:00:00Z; covers the years 1677 to 2262.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The length of [`Timestamp::format`]'s text.
    pub const TEXT_LEN: usize = 30;

    /// Returns the time of the system clock, clamped to the range.
    pub fn now() -> Self {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Self(i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)),
            Err(before) => {
                Self(i64::try_from(before.duration().as_nanos()).map_or(i64::MIN, |n| -n))
            }
        }
    }

    pub const fn from_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// Whole seconds, rounded towards the past.
    pub const fn as_secs(self) -> i64 {
        self.0.div_euclid(NANOS_PER_SEC)
    }

    /// `2026-03-01T12:00:00.000000000Z`: UTC, nine digits, always the same width.
    pub fn format(self) -> [u8; Self::TEXT_LEN] {
        let secs = self.as_secs();
        let (year, month, day) = civil_from_days(secs.div_euclid(SECS_PER_DAY));
        let second_of_day = secs.rem_euclid(SECS_PER_DAY);
        let mut text = *b"0000-00-00T00:00:00.000000000Z";
        put_digits(&mut text[0..4], year);
        put_digits(&mut text[5..7], month);
        put_digits(&mut text[8..10], day);
        put_digits(&mut text[11..13], second_of_day / 3600);
        put_digits(&mut text[14..16], second_of_day / 60 % 60);
        put_digits(&mut text[17..19], second_of_day % 60);
        put_digits(&mut text[20..29], self.0.rem_euclid(NANOS_PER_SEC));
        text
    }

    /// Reads an RFC 3339 time with any number of fraction digits (those after the ninth are
    /// dropped) and `Z` or a numeric offset. A leap second counts as the second before it.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (head, rest) = text.split_at_checked(19)?;
        if head[4] != b'-'
            || head[7] != b'-'
            || !matches!(head[10], b'T' | b't')
            || head[13] != b':'
            || head[16] != b':'
        {
            return None;
        }
        let year = digits(&head[0..4])?;
        let month = digits(&head[5..7])?;
        let day = digits(&head[8..10])?;
        let hour = digits(&head[11..13])?;
        let minute = digits(&head[14..16])?;
        let second = digits(&head[17..19])?;
        if !(1..=12).contains(&month)
            || !(1..=days_in_month(year, month)).contains(&day)
            || hour > 23
            || minute > 59
            || second > 60
        {
            return None;
        }
        let (fraction, zone) = parse_fraction(rest)?;
        let offset = parse_offset(zone)?;
        let secs = days_from_civil(year, month, day) * SECS_PER_DAY
            + hour * 3600
            + minute * 60
            + second.min(59)
            - offset;
        // Near the ends of the range the seconds alone may overflow where the sum does not.
        let nanos = i128::from(secs) * i128::from(NANOS_PER_SEC) + i128::from(fraction);
        i64::try_from(nanos).ok().map(Self)
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.format();
        f.write_str(std::str::from_utf8(&text).map_err(|_| fmt::Error)?)
    }
}

/// Writes a number that is not negative and fits the digits.
fn put_digits(out: &mut [u8], value: i64) {
    // Dividing 32 bits is about twice as fast.
    let mut value = u32::try_from(value).unwrap_or(0);
    for digit in out.iter_mut().rev() {
        let [low, ..] = (value % 10).to_le_bytes();
        *digit = b'0' + low;
        value /= 10;
    }
}

fn digits(text: &[u8]) -> Option<i64> {
    text.iter().try_fold(0_i64, |value, byte| {
        byte.is_ascii_digit()
            .then(|| value * 10 + i64::from(byte - b'0'))
    })
}

/// Parses an optional `.123`; returns nanoseconds and the rest.
fn parse_fraction(text: &[u8]) -> Option<(i64, &[u8])> {
    let Some(after_point) = text.strip_prefix(b".") else {
        return Some((0, text));
    };
    let len = after_point
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    if len == 0 {
        return None;
    }
    let (fraction, zone) = after_point.split_at(len);
    let kept = &fraction[..len.min(9)];
    let nanos = kept.len()..9;
    Some((nanos.fold(digits(kept)?, |value, _| value * 10), zone))
}

/// Seconds east of UTC.
fn parse_offset(zone: &[u8]) -> Option<i64> {
    let (sign, text) = match zone {
        b"Z" | b"z" => return Some(0),
        [b'+', text @ ..] => (1, text),
        [b'-', text @ ..] => (-1, text),
        _ => return None,
    };
    let [h1, h2, b':', m1, m2] = *text else {
        return None;
    };
    let (hours, minutes) = (digits(&[h1, h2])?, digits(&[m1, m2])?);
    (hours <= 23 && minutes <= 59).then_some(sign * (hours * 3600 + minutes * 60))
}

fn days_in_month(year: i64, month: i64) -> i64 {
    match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

// The calendar repeats every 400 years (146,097 days). Counting years from March puts the leap
// day last, which makes the day of the year a linear function of the month.

fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 719,468 days lie between 0000-03-01 and the epoch.
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}
