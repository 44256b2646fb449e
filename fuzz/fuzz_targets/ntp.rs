//! Answers of NTP servers.
#![no_main]

use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use mainstay_node::ntp::Request;

const COOKIE: [u8; 8] = *b"unguessd";

fuzz_target!(|packet: &[u8]| {
    let request = Request::new(COOKIE);
    let elapsed = Duration::from_millis(25);
    if let Ok(found) = request.measure(packet, 1_795_305_600_000_000_000, elapsed) {
        assert!(request.is_answered_by(packet));
        assert!(found.round_trip <= elapsed && (1..=15).contains(&found.stratum));
    }
    // The same packet as an answer to this request gets past the first check.
    let mut answer = packet.to_vec();
    if let Some(origin) = answer.get_mut(24..32) {
        origin.copy_from_slice(&COOKIE);
        let _ = request.measure(&answer, 0, elapsed);
    }
});
