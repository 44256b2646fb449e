//! Lines of log files: any bytes are a record whose text is the end of the line, and which is
//! parsed to itself once written in canonical form.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_journal::cri::{Record, parse_line};

fuzz_target!(|data: &[u8]| {
    let record = parse_line(data);
    assert!(data.ends_with(record.text));
    if record.time.is_none() {
        assert_eq!(record.text, data, "what is no record is all text");
    }
    assert_eq!(parse_line(&written(&record)), record);
});

fn written(record: &Record<'_>) -> Vec<u8> {
    let mut line = Vec::new();
    if let Some(time) = record.time {
        let tag = if record.partial { 'P' } else { 'F' };
        line.extend_from_slice(format!("{time} {} {tag} ", record.stream.as_str()).as_bytes());
    }
    line.extend_from_slice(record.text);
    line
}
