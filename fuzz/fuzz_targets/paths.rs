//! File names: every name survives the wire and the terminal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_paths::{escape, from_wire, to_wire, unescape, wire_of_argument};

fuzz_target!(|name: &[u8]| {
    if name.contains(&0) {
        return;
    }
    assert_eq!(from_wire(&to_wire(name)), name);
    let text = escape(name);
    assert!(!text.contains(char::is_control));
    assert_eq!(unescape(text.as_bytes()), name);
    assert_eq!(from_wire(&wire_of_argument(text.as_bytes())), name);
});
