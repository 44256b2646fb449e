use mainstay_journal::Timestamp;
use proptest::prelude::*;

fn jiff_nanos(text: &str) -> Option<i64> {
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok()
}

fn ours(text: &str) -> Option<i64> {
    Timestamp::parse(text.as_bytes()).map(Timestamp::as_nanos)
}

proptest! {
    #[test]
    fn formats_like_jiff_and_reads_it_back(nanos: i64) {
        let time = Timestamp::from_nanos(nanos);
        let expected = jiff::Timestamp::from_nanosecond(i128::from(nanos)).unwrap();
        prop_assert_eq!(time.to_string(), format!("{expected:.9}"));
        prop_assert_eq!(Timestamp::parse(&time.format()), Some(time));
        prop_assert_eq!(time.as_secs(), nanos.div_euclid(1_000_000_000));
    }

    #[test]
    fn parses_like_jiff(
        year in 1670..2270, month in 0..14, day in 0..33, hour in 0..25, minute in 0..61,
        second in 0..60, fraction in "(\\.[0-9]{1,9})?", zone in "Z|z|[+-](0[0-9]|1[0-9]|2[0-3]):[0-5][0-9]",
    ) {
        let text =
            format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}{fraction}{zone}");
        prop_assert_eq!(ours(&text), jiff_nanos(&text), "{}", text);
    }

    #[test]
    fn no_bytes_cause_a_panic(bytes: Vec<u8>) {
        let _ = Timestamp::parse(&bytes);
    }

    #[test]
    fn a_corrupt_time_is_parsed_as_jiff_does_or_refused(nanos: i64, at in 0..30_usize, byte in 0x20..0x7F_u8) {
        let mut text = Timestamp::from_nanos(nanos).format();
        text[at] = byte;
        let text = std::str::from_utf8(&text).unwrap();
        if let Some(ours) = ours(text) {
            prop_assert_eq!(Some(ours), jiff_nanos(text), "{}", text);
        }
    }
}

#[test]
fn fraction_digits_after_the_ninth_are_dropped() {
    assert_eq!(ours("1970-01-01T00:00:00.1234567899Z"), Some(123_456_789));
    assert_eq!(ours("1970-01-01T00:00:01.5Z"), Some(1_500_000_000));
}

#[test]
fn malformed_times_are_refused() {
    for text in [
        "",
        "Z",
        "1970-01-01",
        "1970-01-01T00:00:00",
        "1970-01-01T00:00:00.Z",
        "1970-01-01 00:00:00Z",
        "1970-02-29T00:00:00Z",
        "1970-01-01T00:00:00+01",
        "1970-01-01T00:00:00+0100",
        "1970-01-01T00:00:00Zx",
        "+970-01-01T00:00:00Z",
    ] {
        assert_eq!(ours(text), None, "{text}");
    }
}

#[test]
fn now_is_the_clock_of_the_machine() {
    let before = jiff::Timestamp::now().as_nanosecond();
    let now = i128::from(Timestamp::now().as_nanos());
    let after = jiff::Timestamp::now().as_nanosecond();
    assert!((before..=after).contains(&now));
}
