//! Records of PAX extended headers: `<length> <keyword>=<value>\n`, values of any bytes.

use std::io;

use crate::Time;

const NANOSECONDS: u32 = 1_000_000_000;

/// Appends a record.
pub(crate) fn push(records: &mut Vec<u8>, keyword: &[u8], value: &[u8]) {
    // The length counts its own digits.
    let rest = keyword.len() + value.len() + 3;
    let mut length = rest + 1;
    while length != rest + digits(length) {
        length = rest + digits(length);
    }
    records.extend_from_slice(length.to_string().as_bytes());
    records.push(b' ');
    records.extend_from_slice(keyword);
    records.push(b'=');
    records.extend_from_slice(value);
    records.push(b'\n');
}

fn digits(number: usize) -> usize {
    number.checked_ilog10().map_or(1, |log| log as usize + 1)
}

/// Parses all records of a header: keywords and values.
pub(crate) fn parse(mut records: &[u8]) -> io::Result<Vec<(&[u8], &[u8])>> {
    let mut parsed = Vec::new();
    while !records.is_empty() {
        let (record, rest) = split_record(records)
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "malformed PAX record"))?;
        parsed.push(record);
        records = rest;
    }
    Ok(parsed)
}

type Record<'a> = (&'a [u8], &'a [u8]);

fn split_record(records: &[u8]) -> Option<(Record<'_>, &[u8])> {
    let space = records.iter().take(20).position(|byte| *byte == b' ')?;
    let length: usize = number(records.get(..space)?)?;
    let record = records.get(space + 1..length)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|byte| *byte == b'=')?;
    let (keyword, value) = (record.get(..equals)?, record.get(equals + 1..)?);
    Some(((keyword, value), records.get(length..)?))
}

/// Parses a decimal number.
pub(crate) fn number<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    // `parse` accepts a plus sign, the format does not.
    let digits = text.first().is_some_and(u8::is_ascii_digit);
    let text = std::str::from_utf8(text).ok().filter(|_| digits)?;
    text.parse().ok()
}

/// Formats a time; before 1970 the whole number is negative, fraction included.
pub(crate) fn time(time: Time) -> String {
    let (sign, seconds, nanoseconds) = match (time.seconds, time.nanoseconds) {
        (seconds, 0) if seconds < 0 => ("-", seconds.unsigned_abs(), 0),
        (seconds, ns) if seconds < 0 => ("-", seconds.unsigned_abs() - 1, NANOSECONDS - ns),
        (seconds, ns) => ("", seconds.unsigned_abs(), ns),
    };
    if nanoseconds == 0 {
        return format!("{sign}{seconds}");
    }
    let fraction = format!("{nanoseconds:09}");
    format!("{sign}{seconds}.{}", fraction.trim_end_matches('0'))
}

/// Parses a time; digits beyond nanoseconds are cut.
pub(crate) fn parse_time(text: &[u8]) -> Option<Time> {
    let (negative, text) = match text.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, text),
    };
    let mut parts = text.splitn(2, |byte| *byte == b'.');
    let seconds: i64 = number(parts.next()?)?;
    let fraction = parts.next().unwrap_or_default();
    if !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let nanoseconds = (0..9).fold(0, |value, at| {
        value * 10 + fraction.get(at).map_or(0, |digit| u32::from(digit - b'0'))
    });
    Some(match (negative, nanoseconds) {
        (false, nanoseconds) => Time {
            seconds,
            nanoseconds,
        },
        (true, 0) => Time {
            seconds: -seconds,
            nanoseconds,
        },
        (true, nanoseconds) => Time {
            seconds: -seconds - 1,
            nanoseconds: NANOSECONDS - nanoseconds,
        },
    })
}

/// Escapes the name of an attribute for its keyword, where `=` would end it.
pub(crate) fn xattr_keyword(name: &[u8]) -> Vec<u8> {
    let mut keyword = b"SCHILY.xattr.".to_vec();
    for byte in name {
        match byte {
            b'%' => keyword.extend(b"%25"),
            b'=' => keyword.extend(b"%3D"),
            byte => keyword.push(*byte),
        }
    }
    keyword
}

/// Returns the name of the attribute that a keyword carries.
pub(crate) fn xattr_name(keyword: &[u8]) -> Option<Vec<u8>> {
    let mut rest = keyword.strip_prefix(b"SCHILY.xattr.")?;
    let mut name = Vec::with_capacity(rest.len());
    while let Some((first, tail)) = rest.split_first() {
        let (byte, tail) = match (first, tail) {
            (b'%', [b'2', b'5', tail @ ..]) => (b'%', tail),
            (b'%', [b'3', b'D', tail @ ..]) => (b'=', tail),
            _ => (*first, tail),
        };
        name.push(byte);
        rest = tail;
    }
    Some(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_length_of_a_record_counts_its_own_digits() {
        for (value, length) in [
            (1, 6),
            (92, 98),
            (93, 99),
            (94, 101),
            (992, 999),
            (993, 1001),
        ] {
            let mut records = Vec::new();
            push(&mut records, b"k", &vec![b'v'; value]);
            assert_eq!(records.len(), length, "{value}");
            assert!(records.starts_with(length.to_string().as_bytes()));
        }
    }

    #[test]
    fn times_before_1970_are_negative_as_a_whole() {
        let text = |seconds, nanoseconds| {
            time(Time {
                seconds,
                nanoseconds,
            })
        };
        assert_eq!(text(-1, 500_000_000), "-0.5");
        assert_eq!(text(-2, 0), "-2");
        assert_eq!(text(7, 20), "7.00000002");
        for wrong in ["", "-", ".5", "+1", "1.x", "1e3", "99999999999999999999"] {
            assert_eq!(parse_time(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn records_survive(records: Vec<(String, Vec<u8>)>) {
            let mut bytes = Vec::new();
            let keyword = |text: &String| text.replace('=', "").into_bytes();
            for (name, value) in &records {
                push(&mut bytes, &keyword(name), value);
            }
            let expected: Vec<(Vec<u8>, Vec<u8>)> =
                records.iter().map(|(name, value)| (keyword(name), value.clone())).collect();
            let parsed: Vec<(Vec<u8>, Vec<u8>)> = parse(&bytes)
                .unwrap()
                .into_iter()
                .map(|(keyword, value)| (keyword.to_vec(), value.to_vec()))
                .collect();
            prop_assert_eq!(parsed, expected);
        }

        #[test]
        fn times_survive(seconds in -i64::MAX / 2..i64::MAX / 2, nanoseconds in 0..NANOSECONDS) {
            let sent = Time { seconds, nanoseconds };
            prop_assert_eq!(parse_time(time(sent).as_bytes()), Some(sent));
        }

        #[test]
        fn names_of_attributes_survive(name: Vec<u8>) {
            prop_assert_eq!(xattr_name(&xattr_keyword(&name)), Some(name));
        }

        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>) {
            let _ = (parse(&bytes), parse_time(&bytes), xattr_name(&bytes));
        }
    }
}
