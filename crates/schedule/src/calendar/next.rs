//! The next time of a calendar, across changes of the zone's offset.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};

use super::{Calendar, Years};

/// The longest search: February 29 on one weekday, and a leap year left out, come within 40 years.
const MAX_YEARS: i16 = 60;

impl Calendar {
    /// Returns the first time after `now`; `None` if there is none within 60 years. `zone` is used
    /// if the expression has none.
    ///
    /// A time that a change to summer time leaves out counts as the moment of the change. A time that
    /// comes twice counts once, unless the calendar runs in every hour.
    pub fn next_after(&self, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let zone = self.zone.as_ref().unwrap_or(zone);
        // Civil times are whole seconds.
        let second = Timestamp::from_second(
            now.as_second()
                .checked_add(i64::from(now.subsec_nanosecond() >= 0))?,
        )
        .ok()?;
        if self.hours == super::field::Set::all(0, 23) {
            return self.next_by_offset(second, zone);
        }
        let mut from = zone.to_datetime(second);
        let end = from.year().saturating_add(MAX_YEARS);
        loop {
            let next = self.next_civil(from, end)?;
            let at = moment(next, zone)?;
            if at >= second {
                return Some(at);
            }
            // The first of two times that are called the same is over.
            from = next.checked_add(1.second()).ok()?;
        }
    }

    /// Searches in every span of the zone with one offset, where civil time is a plain clock.
    fn next_by_offset(&self, from: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
        let end = zone.to_datetime(from).year().saturating_add(MAX_YEARS);
        let mut from = from;
        loop {
            let offset = zone.to_offset(from);
            let next = self.next_civil(offset.to_datetime(from), end)?;
            let at = offset.to_timestamp(next).ok()?;
            match zone.following(from).next() {
                Some(change) if change.timestamp() <= at => from = change.timestamp(),
                _ => return Some(at),
            }
            if offset.to_datetime(from).year() > end {
                return None;
            }
        }
    }

    /// Returns the first matching civil time that is not before `from`.
    fn next_civil(&self, from: DateTime, end: i16) -> Option<DateTime> {
        if let Some(time) = self.time_from(from.time())
            && self.is_day(from.date())
        {
            return Some(from.date().to_datetime(time));
        }
        let first = self.time_from(Time::midnight())?;
        let mut date = from.date().tomorrow().ok()?;
        while date.year() <= end {
            if !self.is_year(date.year()) {
                date = Date::new(date.year().checked_add(1)?, 1, 1).ok()?;
            } else if !self.months.contains(date.month()) {
                date = date.last_of_month().tomorrow().ok()?;
            } else if self.is_day(date) {
                return Some(date.to_datetime(first));
            } else {
                date = date.tomorrow().ok()?;
            }
        }
        None
    }

    fn is_year(&self, year: i16) -> bool {
        let contains = |years: &Years| {
            (years.first..=years.last).contains(&year) && (year - years.first) % years.step == 0
        };
        self.years
            .as_ref()
            .is_none_or(|all| all.iter().any(contains))
    }

    fn is_day(&self, date: Date) -> bool {
        let day = self.days.contains(date.day());
        let weekday = (self.weekdays).contains(date.weekday().to_sunday_zero_offset());
        let matches = match self.day_or_weekday {
            true => day || weekday,
            false => day && weekday,
        };
        matches && self.months.contains(date.month()) && self.is_year(date.year())
    }

    /// Returns the first matching time of a day that is not before `from`.
    fn time_from(&self, from: Time) -> Option<Time> {
        let (first_minute, first_second) = (self.minutes.first()?, self.seconds.first()?);
        let hour = self.hours.at_least(from.hour())?;
        if hour > from.hour() {
            return Time::new(hour, first_minute, first_second, 0).ok();
        }
        let minute = self.minutes.at_least(from.minute());
        let second = minute.and_then(|minute| {
            let from = if minute > from.minute() {
                0
            } else {
                from.second()
            };
            self.seconds.at_least(from).map(|second| (minute, second))
        });
        // The second may be over in the last matching minute, or in this one only.
        let later = || self.minutes.at_least(from.minute().saturating_add(1));
        let in_hour = second.or_else(|| later().map(|minute| (minute, first_second)));
        if let Some((minute, second)) = in_hour {
            return Time::new(hour, minute, second, 0).ok();
        }
        let hour = self.hours.at_least(hour.saturating_add(1))?;
        Time::new(hour, first_minute, first_second, 0).ok()
    }
}

/// The moment of a civil time: the first of two, and the change that leaves it out.
fn moment(civil: DateTime, zone: &TimeZone) -> Option<Timestamp> {
    let ambiguous = zone.to_ambiguous_timestamp(civil);
    if !matches!(ambiguous.offset(), jiff::tz::AmbiguousOffset::Gap { .. }) {
        return ambiguous.earlier().ok();
    }
    let before = ambiguous.earlier().ok()?;
    let change = zone.following(before).next()?;
    Some(change.timestamp())
}
