//! Records of the kernel log: a parsed record is part of the bytes, and parsed to itself once
//! written again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_node::kmsg::Record;

fuzz_target!(|data: &[u8]| {
    let Some(record) = Record::parse(data) else {
        return;
    };
    assert!(record.priority < 8 && record.priority_name().len() <= 7);
    let body = data.strip_suffix(b"\n").unwrap_or(data);
    assert!(body.ends_with(record.message) || data.ends_with(record.message));
    let mut again = format!(
        "{},{},{},-;",
        u64::from(record.facility) * 8 + u64::from(record.priority),
        record.sequence,
        record.since_boot.as_micros()
    )
    .into_bytes();
    again.extend_from_slice(record.message);
    again.push(b'\n');
    assert_eq!(Record::parse(&again), Some(record));
});
