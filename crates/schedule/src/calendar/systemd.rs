//! The form of systemd: `WEEKDAYS DATE TIME ZONE`, each of which may be missing, or a keyword.

use jiff::tz::TimeZone;

use super::field::{Set, Syntax, WEEKDAYS};
use super::{Calendar, Years};

/// jiff's last year.
const MAX_YEAR: i16 = 9999;

const fn numbers(name: &'static str, first: u32, last: u32) -> Syntax {
    Syntax {
        name,
        first,
        last,
        range: "..",
        names: &[],
    }
}

/// Returns the calendar of a keyword such as `daily`.
pub(super) fn keyword(word: &str) -> Option<Calendar> {
    let daily = Calendar::midnight();
    let every_hour = Set::all(0, 23);
    let first = Set::only(1);
    Some(match word.to_ascii_lowercase().as_str() {
        "minutely" => Calendar {
            hours: every_hour,
            minutes: Set::all(0, 59),
            ..daily
        },
        "hourly" => Calendar {
            hours: every_hour,
            ..daily
        },
        "daily" | "midnight" => daily,
        "weekly" => Calendar {
            weekdays: Set::only(1),
            ..daily
        },
        "monthly" => Calendar {
            days: first,
            ..daily
        },
        "quarterly" => Calendar {
            days: first,
            months: [4, 7, 10].into_iter().fold(first, Set::with),
            ..daily
        },
        "semiannually" => Calendar {
            days: first,
            months: first.with(7),
            ..daily
        },
        "yearly" | "annually" => Calendar {
            days: first,
            months: first,
            ..daily
        },
        _ => return None,
    })
}

pub(super) fn parse(words: &[&str]) -> Result<Calendar, String> {
    let mut words = words.to_vec();
    let zone = match words.last() {
        Some(last) if is_zone(last) => {
            let zone = TimeZone::get(last);
            let zone = zone.map_err(|_| format!("the time zone {last:?} is unknown"))?;
            words.pop();
            Some(zone)
        }
        _ => None,
    };
    if let [word] = words.as_slice()
        && let Some(calendar) = keyword(word)
    {
        return Ok(Calendar { zone, ..calendar });
    }
    let mut rest = words.as_slice();
    let mut calendar = Calendar {
        zone,
        ..Calendar::midnight()
    };
    if let [word, further @ ..] = rest
        && word.starts_with(|c: char| c.is_ascii_alphabetic())
    {
        calendar.weekdays = weekdays(word)?;
        rest = further;
    }
    if let [word, further @ ..] = rest
        && word.contains('-')
    {
        set_date(&mut calendar, word)?;
        rest = further;
    }
    if let [word, further @ ..] = rest {
        set_time(&mut calendar, word)?;
        rest = further;
    }
    match rest {
        [] if words.is_empty() => Err("it has nothing but a time zone".to_owned()),
        [] => Ok(calendar),
        [word, ..] => Err(format!(
            "{word:?} is unexpected; write WEEKDAYS DATE TIME ZONE, such as Mon..Fri *-*-* 06:30"
        )),
    }
}

/// Names of time zones have a slash or are `UTC`; weekdays and keywords have and are not.
fn is_zone(word: &str) -> bool {
    let letter = word.starts_with(|c: char| c.is_ascii_alphabetic());
    letter && (word.contains('/') || word.eq_ignore_ascii_case("utc"))
}

fn weekdays(word: &str) -> Result<Set, String> {
    let syntax = Syntax {
        names: &WEEKDAYS,
        ..numbers("weekday", 0, 6)
    };
    // The week begins on Monday: Sat..Sun is no empty range.
    let mut all = None::<Set>;
    for part in word.split(',') {
        let set = match part.split_once("..") {
            Some((first, last)) => {
                let ends = [first, last].map(|end| syntax.parse(end));
                let [first, last] = ends;
                let (first, last) = (number(first?), number(last?));
                let after = (last + 7 - first) % 7;
                (0..=after).fold(Set::only(first), |set, n| set.with((first + n) % 7))
            }
            None => syntax.parse(part)?,
        };
        all = Some(all.map_or(set, |all| all.union(set)));
    }
    all.ok_or_else(|| "the weekday is missing".to_owned())
}

fn number(set: Set) -> u32 {
    set.first()
        .map_or(0, |first| u32::try_from(first).unwrap_or(0))
}

/// `YEAR-MONTH-DAY` or `MONTH-DAY`.
fn set_date(calendar: &mut Calendar, word: &str) -> Result<(), String> {
    let parts: Vec<&str> = word.split('-').collect();
    let (year, month, day) = match parts.as_slice() {
        [month, day] => ("*", month, day),
        [year, month, day] => (*year, month, day),
        _ => return Err(format!("the date {word:?} is not YEAR-MONTH-DAY")),
    };
    calendar.years = years(year)?;
    calendar.months = numbers("month", 1, 12).parse(month)?;
    calendar.days = numbers("day", 1, 31).parse(day)?;
    Ok(())
}

fn years(text: &str) -> Result<Option<Vec<Years>>, String> {
    if text == "*" {
        return Ok(None);
    }
    let year = |text: &str| {
        let year = text.parse::<i16>().ok();
        year.filter(|year| (1970..=MAX_YEAR).contains(year))
            .ok_or_else(|| format!("the year {text:?} is not one of 1970 to {MAX_YEAR}"))
    };
    let part = |part: &str| {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => {
                let step = step.parse::<i16>().ok().filter(|step| *step > 0);
                let step = step.ok_or_else(|| format!("the year {part:?} has no valid step"))?;
                (range, Some(step))
            }
            None => (part, None),
        };
        let (first, last) = match range.split_once("..") {
            Some((first, last)) => (year(first)?, year(last)?),
            None => {
                let first = year(range)?;
                (first, if step.is_some() { MAX_YEAR } else { first })
            }
        };
        let step = step.unwrap_or(1);
        match first <= last {
            true => Ok(Years { first, last, step }),
            false => Err(format!("the year {range} is an empty range")),
        }
    };
    text.split(',')
        .map(part)
        .collect::<Result<_, _>>()
        .map(Some)
}

/// `HOUR:MINUTE` or `HOUR:MINUTE:SECOND`.
fn set_time(calendar: &mut Calendar, word: &str) -> Result<(), String> {
    let parts: Vec<&str> = word.split(':').collect();
    let (hour, minute, second) = match parts.as_slice() {
        [hour, minute] => (hour, minute, "0"),
        [hour, minute, second] => (hour, minute, *second),
        _ => return Err(format!("the time {word:?} is not HOUR:MINUTE:SECOND")),
    };
    calendar.hours = numbers("hour", 0, 23).parse(hour)?;
    calendar.minutes = numbers("minute", 0, 59).parse(minute)?;
    calendar.seconds = numbers("second", 0, 59).parse(second)?;
    Ok(())
}
