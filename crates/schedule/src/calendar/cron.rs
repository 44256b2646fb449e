//! The five fields of cron: minute, hour, day of the month, month, day of the week.

use super::Calendar;
use super::field::{MONTHS, Set, Syntax, WEEKDAYS};

pub(super) fn parse(fields: [&str; 5]) -> Result<Calendar, String> {
    let [minute, hour, day, month, weekday] = fields;
    let syntax = |name, first, last, names| Syntax {
        name,
        first,
        last,
        range: "-",
        names,
    };
    let weekdays = syntax("weekday", 0, 7, &WEEKDAYS).parse(weekday)?;
    let weekdays = match weekdays.contains(7) {
        true => weekdays.with(0),
        false => weekdays,
    };
    Ok(Calendar {
        minutes: syntax("minute", 0, 59, &[]).parse(minute)?,
        hours: syntax("hour", 0, 23, &[]).parse(hour)?,
        days: syntax("day", 1, 31, &[]).parse(day)?,
        months: syntax("month", 1, 12, &MONTHS).parse(month)?,
        weekdays,
        seconds: Set::only(0),
        // As in Vixie cron: a field that begins with an asterisk restricts nothing by itself.
        day_or_weekday: !day.starts_with('*') && !fields[4].starts_with('*'),
        ..Calendar::midnight()
    })
}
