//! Calendar expressions: times come in order, and none is left out by asking from in between.
#![no_main]

use jiff::Timestamp;
use jiff::tz::TimeZone;
use libfuzzer_sys::fuzz_target;
use mainstay_schedule::Calendar;

fuzz_target!(|input: (&str, u32, u32)| {
    let (text, start, ahead) = input;
    let Ok(calendar) = text.parse::<Calendar>() else {
        return;
    };
    assert_eq!(calendar.to_string().parse::<Calendar>().as_ref(), Ok(&calendar));
    let zone = TimeZone::get("Europe/Zurich").expect("a known zone");
    let at = |second: i64| Timestamp::from_second(second).expect("before the year 9999");
    let early = at(start.into());
    let late = at(i64::from(start) + i64::from(ahead));
    let first = calendar.next_after(early, &zone);
    assert!(first.is_none_or(|first| first > early));
    if let (Some(first), Some(second)) = (first, calendar.next_after(late, &zone)) {
        assert!(first <= second);
        assert!(first <= late || first == second);
    }
});
