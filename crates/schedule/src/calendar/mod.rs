//! Calendar expressions: sets of civil times in a time zone.

mod cron;
mod field;
mod next;
mod systemd;
#[cfg(test)]
mod tests;

use std::fmt;
use std::str::FromStr;

use jiff::tz::TimeZone;

use field::Set;
use serde::{Deserialize, Serialize};

/// Longer expressions are refused.
const MAX_EXPRESSION_BYTES: usize = 256;

/// A calendar expression, such as `Mon..Fri 06:30 Europe/Zurich` or `*/15 * * * *`.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Calendar {
    text: String,
    /// 0 is Sunday.
    weekdays: Set,
    /// `None` is every year.
    years: Option<Vec<Years>>,
    months: Set,
    days: Set,
    /// cron runs on a day that matches either, if both are restricted.
    day_or_weekday: bool,
    hours: Set,
    minutes: Set,
    seconds: Set,
    /// Its own time zone; else that of the caller.
    zone: Option<TimeZone>,
}

/// Years from the first to the last, or every `step`th of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Years {
    first: i16,
    last: i16,
    step: i16,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid calendar expression {shown:?}: {reason}")]
pub struct BadCalendar {
    shown: String,
    reason: String,
}

impl BadCalendar {
    fn new(text: &str, reason: impl Into<String>) -> Self {
        Self {
            shown: text.chars().take(80).collect(),
            reason: reason.into(),
        }
    }
}

impl FromStr for Calendar {
    type Err = BadCalendar;

    /// Five fields are cron's, `@daily` and the like too; everything else is systemd's form.
    fn from_str(text: &str) -> Result<Self, BadCalendar> {
        if text.len() > MAX_EXPRESSION_BYTES {
            let reason = format!("it is longer than {MAX_EXPRESSION_BYTES} bytes");
            return Err(BadCalendar::new(text, reason));
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let parsed = match words.as_slice() {
            [] => Err("it is empty".to_owned()),
            [word] if word.starts_with('@') => systemd::keyword(&word[1..])
                .ok_or_else(|| "write @hourly, @daily, @weekly, @monthly or @yearly".to_owned()),
            [minute, hour, day, month, weekday] => cron::parse([minute, hour, day, month, weekday]),
            words => systemd::parse(words),
        };
        let calendar = parsed.map_err(|reason| BadCalendar::new(text, reason))?;
        Ok(Self {
            text: words.join(" "),
            ..calendar
        })
    }
}

impl TryFrom<String> for Calendar {
    type Error = BadCalendar;

    fn try_from(text: String) -> Result<Self, BadCalendar> {
        text.parse()
    }
}

impl From<Calendar> for String {
    fn from(calendar: Calendar) -> Self {
        calendar.text
    }
}

impl fmt::Display for Calendar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl PartialEq for Calendar {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Calendar {}

impl Calendar {
    /// Every midnight.
    fn midnight() -> Self {
        Self {
            text: String::new(),
            weekdays: Set::all(0, 6),
            years: None,
            months: Set::all(1, 12),
            days: Set::all(1, 31),
            day_or_weekday: false,
            hours: Set::only(0),
            minutes: Set::only(0),
            seconds: Set::only(0),
            zone: None,
        }
    }
}
