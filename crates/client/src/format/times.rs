use std::time::Duration;

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// Parses a time: RFC 3339, or a duration before now (`10m`, `2h`).
pub fn parse_time(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = humantime::parse_duration(text).map_err(|_| {
        "write an RFC 3339 time (2026-11-15T20:00:00Z) or a duration before now (10m, 2h, 1day)"
            .to_owned()
    })?;
    Timestamp::now()
        .checked_sub(ago)
        .map_err(|_| "the duration is too long".to_owned())
}

/// Parses a duration such as `10s` or `1h 30m`.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    humantime::parse_duration(text)
        .map_err(|_| "write a duration: 500ms, 10s, 5m, 2h, 1day".to_owned())
}

/// Converts a time to its protobuf message.
pub fn wire_time(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.as_second(),
        nanos: time.subsec_nanosecond(),
    }
}

/// Formats a time in the local time zone, with milliseconds.
pub fn local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S%.3f")
        .to_string()
}

/// Formats a duration with its two largest units: `3d 4h`, `2h 58m`, `12 s`.
pub fn duration(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{}m {}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h {}m", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{}d {}h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_has_its_two_largest_units() {
        for (seconds, shown) in [
            (0, "0 s"),
            (59, "59 s"),
            (61, "1m 1s"),
            (10_680, "2h 58m"),
            (90_000, "1d 1h"),
        ] {
            assert_eq!(duration(Duration::from_secs(seconds)), shown);
        }
    }
}
