//! Times as text: a parsed time is formatted such that it is parsed to itself, and another library
//! that accepts the text parses the same time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_journal::Timestamp;

fuzz_target!(|data: &[u8]| {
    if let Some(time) = Timestamp::parse(data) {
        check_text(time);
        let text = std::str::from_utf8(data).expect("a time is plain text");
        if let Ok(other) = text.parse::<jiff::Timestamp>() {
            assert_eq!(i128::from(time.as_nanos()), other.as_nanosecond(), "{text}");
        }
    }
    if let Some((first, rest)) = data.split_first_chunk::<8>() {
        let earlier = Timestamp::from_nanos(i64::from_le_bytes(*first));
        check_text(earlier);
        if let Some(second) = rest.first_chunk::<8>() {
            let later = Timestamp::from_nanos(i64::from_le_bytes(*second));
            // All texts have one width, so they sort as the times do.
            assert_eq!(earlier.cmp(&later), earlier.format().cmp(&later.format()));
        }
    }
});

fn check_text(time: Timestamp) {
    let text = time.format();
    assert_eq!(Timestamp::parse(&text), Some(time));
    assert_eq!(time.to_string().as_bytes(), text);
    let other: jiff::Timestamp = time.to_string().parse().expect("the text is RFC 3339");
    assert_eq!(other.as_nanosecond(), i128::from(time.as_nanos()));
}
