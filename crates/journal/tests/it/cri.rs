use mainstay_journal::cri::parse_line;
use mainstay_journal::{Record, Stream, Timestamp};
use proptest::prelude::*;

fn nanos(record: &Record<'_>) -> Option<i64> {
    record.time.map(Timestamp::as_nanos)
}

#[test]
fn reads_lines_of_other_runtimes() {
    let record = parse_line(b"1970-01-01T01:00:00.5+01:00 stderr P some text ");
    assert_eq!(nanos(&record), Some(500_000_000));
    assert_eq!(record.stream, Stream::Stderr);
    assert!(record.partial);
    assert_eq!(record.text, b"some text ");

    let record = parse_line(b"1970-01-01T00:00:00Z stdout F:more:tags x");
    assert_eq!(
        (nanos(&record), record.partial, record.text),
        (Some(0), false, &b"x"[..])
    );

    for empty in [
        &b"1970-01-01T00:00:00Z stdout F"[..],
        b"1970-01-01T00:00:00Z stdout F ",
    ] {
        let record = parse_line(empty);
        assert_eq!(
            (nanos(&record), record.partial, record.text),
            (Some(0), false, &b""[..])
        );
    }
}

#[test]
fn a_line_of_another_format_is_its_own_text() {
    for line in [
        &b""[..],
        b"hello",
        b"1970-01-01T00:00:00Z",
        b"1970-01-01T00:00:00Z stdout",
        b"1970-01-01T00:00:00Z stdlog F text",
        b"1970-01-01T00:00:00Z stdout X text",
        b"1970-01-01T00:00:00Z stdout Fine text",
        b" 1970-01-01T00:00:00Z stdout F text",
    ] {
        let expected = Record {
            time: None,
            stream: Stream::Stdout,
            partial: false,
            unterminated: false,
            text: line,
        };
        assert_eq!(parse_line(line), expected);
    }
}

proptest! {
    #[test]
    fn any_line_is_parsed_and_ends_with_its_text(line: Vec<u8>) {
        prop_assert!(line.ends_with(parse_line(&line).text));
    }

    #[test]
    fn a_written_record_is_parsed_as_written(time: i64, stderr: bool, partial: bool, text: Vec<u8>) {
        let time = Timestamp::from_nanos(time);
        let stream = if stderr { Stream::Stderr } else { Stream::Stdout };
        let mut line = format!("{time} {} {} ", stream.as_str(), if partial { "P" } else { "F" })
            .into_bytes();
        line.extend_from_slice(&text);
        prop_assert_eq!(parse_line(&line), Record { time: Some(time), stream, partial, unterminated: false, text: &text });
    }
}
