//! Tests of calendars against a search second by second, and by examples.

use jiff::tz::TimeZone;
use jiff::{Timestamp, ToSpan};
use proptest::prelude::*;

use super::Calendar;

fn at(text: &str, zone: &str) -> Timestamp {
    let civil: jiff::civil::DateTime = text.parse().unwrap();
    civil
        .to_zoned(TimeZone::get(zone).unwrap())
        .unwrap()
        .timestamp()
}

/// The next times in the zone, with their offset.
fn next(expression: &str, from: &str, zone: &str, count: usize) -> Vec<String> {
    let calendar: Calendar = expression.parse().unwrap();
    let tz = TimeZone::get(zone).unwrap();
    let mut now = at(from, zone);
    let mut times = Vec::new();
    while let Some(time) = (times.len() < count)
        .then(|| calendar.next_after(now, &tz))
        .flatten()
    {
        assert!(time > now, "{expression}: {time} is not after {now}");
        let zoned = time.to_zoned(tz.clone());
        times.push(zoned.strftime("%a %Y-%m-%d %H:%M:%S %:z").to_string());
        now = time;
    }
    times
}

#[test]
fn expressions_mean_what_systemd_and_cron_say() {
    for (expression, from, wanted) in [
        (
            "daily",
            "2026-11-18 20:00",
            "Thu 2026-11-19 00:00:00 +00:00",
        ),
        (
            "@hourly",
            "2026-11-18 20:00",
            "Wed 2026-11-18 21:00:00 +00:00",
        ),
        (
            "minutely",
            "2026-11-18 20:00:59",
            "Wed 2026-11-18 20:01:00 +00:00",
        ),
        (
            "weekly",
            "2026-11-18 20:00",
            "Mon 2026-11-23 00:00:00 +00:00",
        ),
        (
            "quarterly",
            "2026-11-18 20:00",
            "Fri 2027-01-01 00:00:00 +00:00",
        ),
        (
            "Mon..Fri 06:30",
            "2026-11-20 07:00",
            "Mon 2026-11-23 06:30:00 +00:00",
        ),
        (
            "Sat..Mon 06:30",
            "2026-11-18 07:00",
            "Sat 2026-11-21 06:30:00 +00:00",
        ),
        (
            "saturday,Sun 1:2:3",
            "2026-11-18 07:00",
            "Sat 2026-11-21 01:02:03 +00:00",
        ),
        (
            "*-*-01..07 12:00",
            "2026-11-08 07:00",
            "Tue 2026-12-01 12:00:00 +00:00",
        ),
        (
            "Sun *-*-1..7 12:00",
            "2026-11-18 07:00",
            "Sun 2026-12-06 12:00:00 +00:00",
        ),
        (
            "2028..2030/2-02-29 00:00",
            "2026-11-18 07:00",
            "Tue 2028-02-29 00:00:00 +00:00",
        ),
        (
            "*:0/15",
            "2026-11-18 07:16",
            "Wed 2026-11-18 07:30:00 +00:00",
        ),
        (
            "*:*:0/20",
            "2026-11-18 07:59:41",
            "Wed 2026-11-18 08:00:00 +00:00",
        ),
        (
            "05:40 Europe/Zurich",
            "2026-11-18 07:16",
            "Thu 2026-11-19 04:40:00 +00:00",
        ),
        (
            "*/15 * * * *",
            "2026-11-18 07:16",
            "Wed 2026-11-18 07:30:00 +00:00",
        ),
        (
            "30 6 * * mon-fri",
            "2026-11-20 07:00",
            "Mon 2026-11-23 06:30:00 +00:00",
        ),
        (
            "0 0 13 * 5",
            "2026-11-18 07:00",
            "Fri 2026-11-20 00:00:00 +00:00",
        ),
        (
            "0 0 13 * *",
            "2026-11-18 07:00",
            "Sun 2026-12-13 00:00:00 +00:00",
        ),
        (
            "5 4 * jan 7",
            "2026-11-18 07:00",
            "Sun 2027-01-03 04:05:00 +00:00",
        ),
        (
            "0 12 29 2 1",
            "2026-11-18 07:00",
            "Mon 2027-02-01 12:00:00 +00:00",
        ),
    ] {
        assert_eq!(next(expression, from, "UTC", 1), [wanted], "{expression}");
    }
}

#[test]
fn times_that_never_come_have_no_next() {
    for expression in ["*-02-30", "2020-01-01", "31 4-6", "0 0 31 2 *"] {
        match expression.parse::<Calendar>() {
            Ok(_) => assert!(next(expression, "2026-11-18 07:00", "UTC", 1).is_empty()),
            Err(error) => assert_eq!(expression, "31 4-6", "{error}"),
        }
    }
}

#[test]
fn wrong_expressions_are_refused_with_the_reason() {
    for (expression, reason) in [
        ("", "empty"),
        ("60 * * * *", "minute"),
        ("* * * * * *", "HOUR:MINUTE"),
        ("* 24 * * *", "hour"),
        ("*/0 * * * *", "step"),
        ("5-1 * * * *", "empty range"),
        ("Monkey 06:00", "weekday"),
        ("25:00", "hour"),
        ("06:00 Nowhere/City", "time zone"),
        ("2026-13-01", "month"),
        ("1969-01-01", "year"),
        ("@reboot", "@daily"),
        ("UTC", "time zone"),
    ] {
        let error = expression.parse::<Calendar>().unwrap_err().to_string();
        assert!(error.contains(reason), "{expression}: {error}");
    }
}

#[test]
fn a_time_left_out_by_summer_time_runs_at_the_change() {
    // On March 29, 2026, 02:00 becomes 03:00.
    assert_eq!(
        next("02:30", "2026-03-28 00:00", "Europe/Zurich", 3),
        [
            "Sat 2026-03-28 02:30:00 +01:00",
            "Sun 2026-03-29 03:00:00 +02:00",
            "Mon 2026-03-30 02:30:00 +02:00",
        ]
    );
    assert_eq!(
        next("*:30", "2026-03-29 01:00", "Europe/Zurich", 2),
        [
            "Sun 2026-03-29 01:30:00 +01:00",
            "Sun 2026-03-29 03:30:00 +02:00"
        ]
    );
}

#[test]
fn a_time_that_comes_twice_runs_once_but_every_hour_twice() {
    // On October 25, 2026, 03:00 becomes 02:00.
    assert_eq!(
        next("02:30", "2026-10-24 12:00", "Europe/Zurich", 2),
        [
            "Sun 2026-10-25 02:30:00 +02:00",
            "Mon 2026-10-26 02:30:00 +01:00"
        ]
    );
    assert_eq!(
        next("*:30", "2026-10-25 02:00", "Europe/Zurich", 3),
        [
            "Sun 2026-10-25 02:30:00 +02:00",
            "Sun 2026-10-25 02:30:00 +01:00",
            "Sun 2026-10-25 03:30:00 +01:00",
        ]
    );
}

proptest! {
    /// Away from changes of the offset, the result is that of a search by second.
    #[test]
    fn the_next_time_is_the_first_that_matches(
        minute in 0_u32..60, step in 1_u32..60, hour in 0_u32..24, start in 0_i64..200_000,
        seconds in 0_u32..60,
    ) {
        let expression = format!("{hour}..23/2:{minute}/{step}:{seconds}");
        let calendar: Calendar = expression.parse().unwrap();
        let now = Timestamp::from_second(1_770_000_000 + start).unwrap();
        let found = calendar.next_after(now, &TimeZone::UTC).unwrap();
        let matches = |time: Timestamp| {
            let civil = TimeZone::UTC.to_datetime(time);
            let [h, m, s] = [civil.hour(), civil.minute(), civil.second()].map(i8::cast_unsigned).map(u32::from);
            h >= hour && (h - hour) % 2 == 0 && m >= minute && (m - minute) % step == 0 && s == seconds
        };
        let mut time = now.checked_add(1.second()).unwrap();
        while !matches(time) {
            time = time.checked_add(1.second()).unwrap();
        }
        prop_assert_eq!(found, time, "{}", expression);
    }

    #[test]
    fn no_text_makes_a_calendar_panic(text in ".{0,60}|[0-9*/,.: -]{0,30}", start in 0_i64..4_000_000_000) {
        if let Ok(calendar) = text.parse::<Calendar>() {
            let now = Timestamp::from_second(start).unwrap();
            let zone = TimeZone::get("America/New_York").unwrap();
            let next = calendar.next_after(now, &zone);
            prop_assert!(next.is_none_or(|next| next > now));
        }
    }

    /// Times are strictly increasing and none is skipped by asking from in between.
    #[test]
    fn asking_earlier_never_gives_a_later_time(
        hour in 0_u32..24, minute in 0_u32..60, start in 1_770_000_000_i64..1_810_000_000,
        ahead in 1_i64..100_000, every_hour: bool,
    ) {
        let hours = if every_hour { "*".to_owned() } else { hour.to_string() };
        let calendar: Calendar = format!("{hours}:{minute}").parse().unwrap();
        let zone = TimeZone::get("Europe/Zurich").unwrap();
        let early = Timestamp::from_second(start).unwrap();
        let late = Timestamp::from_second(start + ahead).unwrap();
        let first = calendar.next_after(early, &zone).unwrap();
        let second = calendar.next_after(late, &zone).unwrap();
        prop_assert!(first <= second);
        if first > late {
            prop_assert_eq!(first, second);
        }
    }
}
