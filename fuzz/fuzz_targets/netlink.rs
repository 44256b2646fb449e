//! Dumps of links, addresses and routes.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = mainstay_node::network::parse_dump(bytes);
});
