//! Requests on the unix socket: rewriting never depends on how the bytes are cut, never makes them
//! longer, and changes nothing a second time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use mainstay_daemon::rewritten_requests;

fuzz_target!(|data: &[u8]| {
    let whole = rewritten_requests(data, data.len());
    for piece in [1, 2, 9, 100] {
        assert_eq!(rewritten_requests(data, piece), whole);
    }
    assert!(whole.len() <= data.len());
    let again = rewritten_requests(&whole, whole.len());
    assert_eq!(again, whole);
});
