//! Times as people write and read them.

use jiff::Timestamp;
use jiff::tz::TimeZone;

/// A moment: RFC 3339, or how long ago (`10m`, `2h`).
pub fn moment(text: &str) -> Result<Timestamp, String> {
    if let Ok(time) = text.parse() {
        return Ok(time);
    }
    let ago = humantime::parse_duration(text)
        .map_err(|_| "write 2026-11-15T20:00:00Z, or how long ago: 10m, 2h, 1day".to_owned())?;
    Timestamp::now()
        .checked_sub(ago)
        .map_err(|_| "that is too long ago".to_owned())
}

pub fn wire_time(time: Timestamp) -> prost_types::Timestamp {
    prost_types::Timestamp {
        seconds: time.as_second(),
        nanos: time.subsec_nanosecond(),
    }
}

/// In the time zone of whoever reads it.
pub fn local_time(time: Timestamp) -> String {
    time.to_zoned(TimeZone::system())
        .strftime("%Y-%m-%d %H:%M:%S%.3f")
        .to_string()
}
