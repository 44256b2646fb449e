//! Memory statistics: a name that occurs once yields its number, a missing one yields zero.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_node::memory::MemoryInfo;

fuzz_target!(|text: &str| {
    assert_eq!(MemoryInfo::parse(text).get("no: such name"), 0);
    let numbers: u64 = text.bytes().map(u64::from).sum();
    let with_line = format!("Mainstay(fuzz): {numbers} kB\n{text}");
    assert_eq!(MemoryInfo::parse(&with_line).get("Mainstay(fuzz)"), numbers);
});
