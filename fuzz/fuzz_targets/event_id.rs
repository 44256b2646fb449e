//! Event ids: exactly 32 lower-case hexadecimal digits are one, and they are formatted as parsed.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_journal::{EventId, Timestamp};

fuzz_target!(|data: &[u8]| {
    if let Ok(text) = std::str::from_utf8(data) {
        let strict = text.len() == 32
            && text
                .chars()
                .all(|digit| digit.is_ascii_hexdigit() && !digit.is_ascii_uppercase());
        match text.parse::<EventId>() {
            Ok(id) => assert_eq!(id.to_string(), text),
            Err(error) => assert!(!strict, "{text:?} is refused: {error}"),
        }
    }
    if let Some((seq, rest)) = data.split_first_chunk::<8>()
        && let Some(nanos) = rest.first_chunk::<8>()
    {
        let id = EventId {
            seq: u64::from_be_bytes(*seq),
            time: Timestamp::from_nanos(i64::from_be_bytes(*nanos)),
        };
        assert_eq!(id.to_string().parse(), Ok(id));
    }
});
