//! Warnings about certificates that expire soon. Renewal is the task of the directory.

use jiff::{SignedDuration, Timestamp};

use super::info::CertificateInfo;

/// The time before expiry at which warnings start, unless a third of the validity is less.
const NOTICE: SignedDuration = SignedDuration::from_hours(30 * 24);

/// Returns a warning for a client whose certificate expires soon or has expired. `owner` names its
/// owner, for example `context "default"`.
pub fn certificate_warning(owner: &str, info: &CertificateInfo, now: Timestamp) -> Option<String> {
    let phrase = expiry_phrase(info, now)?;
    Some(format!(
        "certificate of {owner} {phrase}; mainstay pki client issues a new one"
    ))
}

/// `expires in 3 days (2026-11-18)` or `expired on 2026-11-18` when that is near or past.
pub fn expiry_phrase(info: &CertificateInfo, now: Timestamp) -> Option<String> {
    let left = info.expires_in(now);
    let day = day(info.not_after);
    if info.is_expired(now) {
        return Some(format!("expired on {day}"));
    }
    let notice = NOTICE.min(info.lifetime() / 3);
    (left <= notice).then(|| format!("expires in {} ({day})", rounded(left)))
}

/// The day of a moment, in UTC, as `2026-11-18`.
pub fn day(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d").to_string()
}

/// Formats a duration in the largest unit that fits, rounded down so as not to overstate it.
fn rounded(left: SignedDuration) -> String {
    let (count, unit) = match (left.as_hours() / 24, left.as_hours(), left.as_mins()) {
        (0, 0, minutes) => (minutes, "minute"),
        (0, hours, _) => (hours, "hour"),
        (days, _, _) => (days, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
